"""The curvature of the likelihood in the outputs of a network, and how its last layer is found."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from varlearn.posterior.binding import model_tensors

Forward = Callable[[Any], Any]


class Outputs(NamedTuple):
    """What the Laplace approximation needs of a batch, in float64: one row for each term of the loss.

    Attributes:
        curvature: H, the Hessian of the negative log-likelihood by the outputs, (B, C, C).
        log_likelihood: of the targets, summed.
    """

    curvature: Tensor
    log_likelihood: float


def output_curvature(outputs: Any, targets: Tensor, noise_variance: float | None) -> Outputs:
    """H and the log-likelihood of logits, of means with a known noise, or of pairs (mean, variance).

    H is diag(p) - p p^T for logits, 1 / noise_variance for means, and diag(1 / v, 1 / (2 v^2)), the Fisher matrix, for
    pairs.

    Args:
        outputs: logits (..., C), means (B, K), or a pair of tensors (B, 1).
        targets: classes (...), or numbers.
        noise_variance: of the targets of a regression whose network gives means; None for the other kinds.

    >>> output_curvature(torch.zeros(1, 2), torch.tensor([0]), None).curvature
    tensor([[[ 0.2500, -0.2500],
             [-0.2500,  0.2500]]], dtype=torch.float64)
    """
    if isinstance(outputs, (tuple, list)):
        mean, variance = (part.double().reshape(-1) for part in outputs)
        offset = targets.double().reshape(-1) - mean
        log_likelihood = -0.5 * (offset.square() / variance + variance.log() + math.log(2.0 * math.pi)).sum()
        return Outputs(
            torch.diag_embed(torch.stack([1.0 / variance, 0.5 / variance.square()], 1)), float(log_likelihood)
        )
    rows = outputs.double().flatten(0, -2)
    if noise_variance is None:
        if targets.is_floating_point():
            raise ValueError(
                "noise_variance=None is for classes, and the targets are numbers; pass the variance of their noise"
            )
        labels, classes = targets.long().reshape(-1, 1), rows.shape[-1]
        if wrong := labels[(labels < 0) | (labels >= classes)].tolist():
            raise ValueError(
                f"a target is class {wrong[0]}, and classes must be 0 to {classes - 1} for the network's {classes} "
                "outputs; leave out examples without a class"
            )
        log_probs = rows.log_softmax(-1)
        probs = log_probs.exp()
        curvature = torch.diag_embed(probs) - probs[:, :, None] * probs[:, None, :]
        return Outputs(curvature, float(log_probs.gather(1, labels).sum()))
    squares = (targets.double().reshape(rows.shape) - rows).square() / noise_variance
    log_likelihood = -0.5 * (squares + math.log(2.0 * math.pi * noise_variance)).sum()
    eye = torch.eye(rows.shape[-1], dtype=torch.float64, device=rows.device) / noise_variance
    return Outputs(eye.expand(len(rows), -1, -1), float(log_likelihood))


class LastLayer(NamedTuple):
    """The linear layer that makes a network's outputs.

    Attributes:
        layer: the module.
        names: of its weight and, where it has one, its bias.
        features: its inputs for the batch that it was found with.
        outputs: of the network for this batch.
    """

    layer: nn.Linear
    names: tuple[str, ...]
    features: Tensor
    outputs: Tensor


def last_layer(model: nn.Module, forward: Forward, inputs: Any) -> LastLayer:
    """The linear layer whose output is the network's output.

    Args:
        model: in eval mode.
        forward: calls it.
        inputs: of a batch.

    Raises:
        ValueError: if there is none, or if it shares its weight with another layer.

    >>> net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 3))
    >>> last_layer(net, net, torch.ones(1, 1)).names
    ('2.weight', '2.bias')
    """
    calls: Counter[nn.Module] = Counter()
    seen: list[tuple[nn.Linear, Tensor, Tensor]] = []  # the latest call
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]

    def see(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(module, nn.Linear)
        calls[module] += 1
        seen[:] = [(module, given[0], output)]

    handles = [layer.register_forward_hook(see) for layer in layers]
    try:
        outputs = forward(inputs)
    finally:
        for handle in handles:
            handle.remove()
    kind = type(model).__name__
    if not seen or not isinstance(outputs, Tensor) or not _is_same(seen[0][2], outputs):
        raise ValueError(f"the last layer of {kind} is not linear: no nn.Linear makes its outputs; use layers='all'")
    layer, features, _ = seen[0]
    params, _, tied = model_tensors(model)
    names = {id(param): name for name, param in params.items()}
    parts = [part for part in (layer.weight, layer.bias) if part is not None]
    found = tuple(names[id(part)] for part in parts)
    if set(found) & set(tied.values()) or calls[layer] > 1:
        raise ValueError(
            f"{found[0]!r}, the last layer of {kind}, is used elsewhere too, so the outputs are not linear in it; "
            "use layers='all'"
        )
    return LastLayer(layer, found, features, outputs)


@contextlib.contextmanager
def uncompiled(model: nn.Module) -> Iterator[None]:
    """Call a network's modules as they were before `module.compile()`, whose code has no place for hooks and vmap."""
    compiled = {module: call for module in model.modules() if (call := module._compiled_call_impl) is not None}
    for module in compiled:
        module._compiled_call_impl = None
    try:
        yield
    finally:
        for module, call in compiled.items():
            module._compiled_call_impl = call


def _is_same(made: Tensor, outputs: Tensor) -> bool:
    return made is outputs or (made.shape == outputs.shape and made.data_ptr() == outputs.data_ptr())
