"""Gradients of single examples, vectorized over a batch: their mean, and the mean of their squares."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map

_GRADIENT_ELEMENTS = 1 << 27  # of the gradients that are held at a time, where the caller does not say

_log = logging.getLogger("varlearn")


class ExampleGradients(NamedTuple):
    """What the gradients of a batch's examples give.

    Attributes:
        loss: mean over the examples.
        mean: trainable parameter -> gradient of the mean loss.
        squares: trainable parameter -> mean of the examples' squared gradients. Never negative.
    """

    loss: Tensor
    mean: dict[Tensor, Tensor]
    squares: dict[Tensor, Tensor]


def example_gradients(
    model: nn.Module,
    loss: Callable[[Callable[..., Any], Any, Tensor], Tensor],
    inputs: Any,
    targets: Tensor,
    chunk_size: int | None = None,
) -> ExampleGradients:
    """One vectorized forward and backward pass for all examples of a batch.

    It works for every layer whose outputs for one example do not depend on the others; recurrent ones, which cannot be
    vectorized, are computed one example at a time. Random layers such as dropout draw anew for each example.

    Args:
        model: the network, at the weights at which the gradients are taken.
        loss: (network, inputs, targets) -> scalar mean loss of a batch. It calls the network that it is given.
        inputs: (B, ...), or a dict or tuple of such tensors.
        targets: (B, ...).
        chunk_size: how many examples at a time; fewer need less memory. None takes as many as have 2^27 gradients.

    Returns:
        The mean loss, the gradient and the squares.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.ones_(model.weight)
    >>> halves = lambda network, x, y: 0.5 * (network(x) - y).square().mean()
    >>> found = example_gradients(model, halves, torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [1.0]]))
    >>> found.mean[model.weight], found.squares[model.weight]  # gradients 1 and 2
    (tensor([[1.5000]]), tensor([[2.5000]]))
    """
    refuse_mixed_examples(model)
    names = {id(param): name for name, param in model.named_parameters()}  # a tied parameter has one name
    trainable = {names[id(param)]: param for param in model.parameters() if param.requires_grad}
    values = {name: param.detach() for name, param in trainable.items()}
    fixed = {name: param.detach() for name, param in model.named_parameters() if name not in trainable}
    fixed |= dict(model.named_buffers())

    def of_one(values: dict[str, Tensor], example: Any, target: Tensor) -> Tensor:
        def network(*args: Any, **kwargs: Any) -> Any:
            return functional_call(model, values | fixed, args, kwargs)

        value = loss(network, tree_map(lambda part: part.unsqueeze(0), example), target.unsqueeze(0))
        if value.dim() > 0:
            raise ValueError(
                f"the loss has shape {tuple(value.shape)} and must be one number, the mean over the batch; "
                "use reduction='mean'"
            )
        return value

    count = len(targets)
    size = chunk_size or max(1, _GRADIENT_ELEMENTS // max(1, sum(value.numel() for value in values.values())))
    total = torch.zeros((), device=targets.device)
    means = {name: torch.zeros_like(value) for name, value in values.items()}
    squares = {name: torch.zeros_like(value) for name, value in values.items()}
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # the other attention kernels are not vectorized
        for start in range(0, count, size):
            part = slice(start, start + size)
            gradients, losses = _each(of_one, values, tree_map(lambda leaf: leaf[part], inputs), targets[part])  # noqa: B023
            total = total + losses.detach().sum()
            for name, gradient in gradients.items():  # (chunk, *shape)
                flat = gradient.detach().flatten(1)
                means[name] += flat.sum(0).view_as(means[name]) / count
                squares[name] += torch.linalg.vector_norm(flat, dim=0).square_().view_as(squares[name]) / count
    return ExampleGradients(
        total / count,
        {param: means[name] for name, param in trainable.items()},
        {param: squares[name] for name, param in trainable.items()},
    )


def _each(
    of_one: Callable[[dict[str, Tensor], Any, Tensor], Tensor], values: dict[str, Tensor], inputs: Any, targets: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients and losses of all examples: vectorized, or one by one where a layer cannot be (recurrent ones)."""
    pair = grad_and_value(of_one)
    try:
        return vmap(pair, in_dims=(None, 0, 0), randomness="different")(values, inputs, targets)
    except RuntimeError as error:
        found = [_alone(of_one, values, _at(inputs, k), targets[k]) for k in range(len(targets))]
        _log_once(str(error).splitlines()[0])
    gradients = {name: torch.stack([gradient[name] for gradient, _ in found]) for name in values}
    return gradients, torch.stack([loss for _, loss in found])


def _alone(
    of_one: Callable[[dict[str, Tensor], Any, Tensor], Tensor], values: dict[str, Tensor], inputs: Any, target: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Gradient and loss of one example by a plain backward pass, which every layer has that can be trained."""
    weights = {name: value.detach().requires_grad_() for name, value in values.items()}
    loss = of_one(weights, inputs, target)
    gradients = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
    return dict(zip(weights, gradients, strict=True)), loss.detach()


def _at(inputs: Any, number: int) -> Any:
    return tree_map(lambda leaf: leaf[number], inputs)


@cache
def _log_once(reason: str) -> None:
    _log.warning("gradients of examples are taken one by one, which is slow: a layer cannot be vectorized (%s)", reason)


def refuse_mixed_examples(model: nn.Module) -> None:
    """Raise where a layer makes the output for one example depend on the others of its batch.

    >>> refuse_mixed_examples(nn.BatchNorm1d(2))
    Traceback (most recent call last):
    ...
    ValueError: BatchNorm1d mixes the examples of a batch, and no example has its own gradient; use a layer ...
    """
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or not module.track_running_stats):
            where = f" ({name})" if name else ""
            raise ValueError(
                f"{type(module).__name__}{where} mixes the examples of a batch, and no example has its own gradient; "
                "use a layer that normalizes each example, e.g. FilterResponseNorm, GroupNorm or LayerNorm"
            )


def add_gradients(gradients: Mapping[Tensor, Tensor]) -> None:
    """Add gradients to `p.grad`, as backward does.

    >>> weight = nn.Parameter(torch.zeros(1))
    >>> add_gradients({weight: torch.ones(1)})
    >>> add_gradients({weight: torch.ones(1)})
    >>> weight.grad
    tensor([2.])
    """
    for param, gradient in gradients.items():
        if param.grad is None:
            param.grad = gradient.clone()  # autograd may return one tensor for several parameters, or an expanded one
        else:
            param.grad += gradient
