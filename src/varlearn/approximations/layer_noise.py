"""Noise for each example of a batch, in place of one sample of the weights for all: gradients with less variance."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from varlearn.approximations.output_curvature import uncompiled
from varlearn.core import bbb
from varlearn.optim import BBB
from varlearn.prediction.loader_batches import device_of

Kind = Literal["local", "flipout"]

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_SMALL = 1e-16  # under a root, whose slope at 0 is infinite


class _Weight(NamedTuple):
    """A parameter in a block: its mean, and sigma as a leaf that gets a gradient."""

    param: Tensor
    mean: Tensor
    sigma: Tensor

    def at_mean(self) -> Tensor:
        """The mean, whose gradient goes to the parameter."""
        return self.param + (self.mean - self.param).detach()

    def offset(self) -> Tensor:
        """sigma eps with the noise that the parameter has, and with the gradient of sigma."""
        eps = (self.param - self.mean).detach() / self.sigma.detach().clamp_min(1e-30)
        return self.sigma * eps


@contextlib.contextmanager
def layer_noise(model: nn.Module, optimizer: BBB, kind: Kind, key: int, grad_scale: float = 1.0) -> Iterator[None]:
    """A training block of `BBB` in which layers have noise for each example where they allow it.

    "local" draws the outputs of linear layers on inputs (B, D) from their distribution (Kingma et al., 2015).
    "flipout" turns the signs of the sample of linear layers and convolutions for each example (Wen et al., 2018). Both
    leave the distribution of each example's output as it is. All other weights have one sample, as in
    `sampled_params(train=True)`, which this takes the place of.

    Args:
        model: whose layers are called in the block; as before afterwards.
        optimizer: of its parameters.
        kind: "local" or "flipout".
        key: decides the noise of the examples.
        grad_scale: the factor of the loss, of `GradScaler`.

    >>> net = nn.Linear(2, 1)
    >>> opt = BBB(net.parameters(), ess=10.0, seed=0)
    >>> with layer_noise(net, opt, "local", key=1):
    ...     net(torch.ones(4, 2)).square().mean().backward()
    >>> opt.step()
    """
    if kind not in ("local", "flipout"):
        raise ValueError(f"kind={kind!r} must be 'local' or 'flipout'; 'flipout' is for convolutions too")
    types = (nn.Linear,) if kind == "local" else (nn.Linear, *_CONVOLUTIONS)
    known = {param for group in optimizer.param_groups for param in group["params"] if param.requires_grad}
    layers = [module for module in model.modules() if type(module) in types and module.weight in known]
    weights: dict[Tensor, _Weight] = {}
    for layer in layers:
        for param in (layer.weight, layer.bias) if kind == "local" else (layer.weight,):
            if isinstance(param, Tensor) and param in known:
                sigma = bbb.std(optimizer.start_of(param)["rho"]).requires_grad_()
                weights[param] = _Weight(param, param.detach().clone(), sigma)
    make = _local if kind == "local" else _flipout
    before = [(layer, layer.__dict__.get("forward")) for layer in layers]
    with uncompiled(model), optimizer.sampled_params(train=True):
        generator = torch.Generator(device=device_of(model)).manual_seed(key % (1 << 63))
        try:
            for layer in layers:
                layer.forward = partial(make, layer, weights, generator, layer.forward)
            yield
        finally:
            for layer, own in before:
                if own is None:
                    del layer.forward
                else:
                    layer.forward = own
        found = {param: each.sigma.grad for param, each in weights.items()}
        optimizer.hand_in_hess({param: grad / grad_scale for param, grad in found.items() if grad is not None})


def _local(
    layer: nn.Linear,
    weights: dict[Tensor, _Weight],
    generator: torch.Generator,
    usual: Callable[[Tensor], Tensor],
    inputs: Tensor,
) -> Tensor:
    if inputs.dim() != 2:
        return usual(inputs)  # positions of an example share the weights, so their noise is not independent
    weight, bias = weights[layer.weight], weights.get(layer.bias)
    mean = linear(inputs, weight.at_mean(), layer.bias if bias is None else bias.at_mean())
    variance = linear(inputs.square(), weight.sigma.square(), None if bias is None else bias.sigma.square())
    noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
    return mean + (variance + _SMALL).sqrt() * noise


def _flipout(
    layer: nn.Module,
    weights: dict[Tensor, _Weight],
    generator: torch.Generator,
    usual: Callable[[Tensor], Tensor],
    inputs: Tensor,
) -> Tensor:
    assert isinstance(layer, (nn.Linear, *_CONVOLUTIONS))
    weight = weights[layer.weight]
    outputs = layer.weight.shape[0]
    if isinstance(layer, nn.Linear):
        middle, call = [1] * (inputs.dim() - 2), linear
        shapes = [(len(inputs), *middle, size) for size in (inputs.shape[-1], outputs)]
    else:
        middle, call = [1] * (inputs.dim() - 2), layer._conv_forward
        shapes = [(len(inputs), size, *middle) for size in (inputs.shape[1], outputs)]
    signs = [
        torch.randint(2, shape, generator=generator, device=inputs.device).to(inputs.dtype).mul_(2).sub_(1)
        for shape in shapes
    ]
    turned = call(inputs * signs[0], weight.offset(), None)
    return call(inputs, weight.at_mean(), layer.bias) + turned * signs[1].to(turned.dtype)
