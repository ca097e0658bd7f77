"""Squared gradients of single examples, summed over a batch, without a backward pass per example.

The gradient of one example's loss in a weight follows from what went into the layer for this example and what came back
to its output. One forward and one backward pass of the whole batch give both for all examples; then each layer squares
and adds up by itself, so that the memory is that of one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from varlearn.core.elementary_attention import plain_attention
from varlearn.merging.layer_gradients import Use, add_squares, per_example
from varlearn.optim.per_example import example_gradients

LossSum = Callable[[Any, Tensor], Tensor]
"""(outputs, targets) -> the sum of the examples' losses."""


@plain_attention()
def example_squares(
    model: nn.Module, loss_sum: LossSum, args: tuple[Any, ...], kwargs: Mapping[str, Any], targets: Tensor
) -> dict[str, Tensor]:
    """sum_i (grad loss_i)^2 over the examples of a batch, for every trainable parameter.

    Layers are used one at a time where that gives the same as a single example's own gradient, which is tried for the
    first example. Otherwise, e.g. for recurrent layers, weights used outside their layer or batches that are not the
    first dimension, the whole model is differentiated (`varlearn.optim.per_example`). The model is not changed.

    Args:
        model: an output must depend on one example alone; layers that mix examples or draw random numbers must be in
            eval mode.
        loss_sum: of the model's outputs and the targets.
        args: positional arguments of the model; tensors have the examples in their first dimension.
        kwargs: named arguments.
        targets: (B, ...).

    Returns:
        One sum per trainable parameter, by its first name.

    >>> net = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.ones_(net.weight)
    >>> halves = lambda out, target: 0.5 * (out - target).square().sum()
    >>> example_squares(net, halves, (torch.tensor([[1.0], [2.0]]),), {}, torch.tensor([[0.0], [1.0]]))
    {'weight': tensor([[5.]])}
    """
    params = {name: param for name, param in model.named_parameters() if param.requires_grad}
    uses = _record(model, loss_sum, args, kwargs, targets)
    if uses is not None and _first_example_agrees(model, params, uses, loss_sum, args, kwargs, targets):
        sums = {name: torch.zeros_like(param) for name, param in params.items()}
        for name, param in params.items():
            add_squares(sums[name], [use for use in uses if use.holds(param)], param)
        return sums
    return _whole_model(model, params, loss_sum, args, kwargs, targets)


def _record(
    model: nn.Module, loss_sum: LossSum, args: tuple[Any, ...], kwargs: Mapping[str, Any], targets: Tensor
) -> list[Use] | None:
    """Every call of a layer with its inputs and the gradient of its output; None where they are not to be had."""
    uses: list[Use] = []
    size = len(targets)
    with torch.enable_grad(), _hooked(model, uses, size):
        total = loss_sum(model(*args, **kwargs), targets)
    outputs = [use.output for use in uses]
    if not all(isinstance(one, Tensor) and one.requires_grad for one in outputs) or any(use.changed for use in uses):
        return None
    if not total.requires_grad:
        raise ValueError("the loss depends on no trainable parameter; call requires_grad_() on those to measure")
    for use, slope in zip(uses, torch.autograd.grad(total, outputs, allow_unused=True), strict=True):
        use.slope = torch.zeros_like(use.output) if slope is None else slope
        use.output = None
    return uses if all(use.fits(size) for use in uses) else None


@contextmanager
def _hooked(model: nn.Module, uses: list[Use], examples: int) -> Iterator[None]:
    def expand(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Positions that all examples have in common are given once per example, so that the gradients are apart."""
        if args and isinstance(args[0], Tensor) and args[0].dim() > 1 and len(args[0]) == 1:
            return args[0].expand(examples, *args[0].shape[1:]), *args[1:]
        return args

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        uses.append(Use(module, args, kwargs, output))

    handles = [
        module.register_forward_hook(note, with_kwargs=True)
        for module in model.modules()
        if any(param.requires_grad for param in module.parameters(recurse=False))
    ]
    handles += [one.register_forward_pre_hook(expand) for one in model.modules() if type(one) is nn.Embedding]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _first_example_agrees(
    model: nn.Module,
    params: Mapping[str, Tensor],
    uses: list[Use],
    loss_sum: LossSum,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    targets: Tensor,
) -> bool:
    """Whether the layers' gradient of example 0 is that of a batch with this example alone.

    Two correct ways differ by rounding, also of autocast, and two wrong ones by a good part of the gradient.
    """
    with torch.enable_grad():
        first, named = _rows((args, dict(kwargs)), slice(0, 1))
        total = loss_sum(model(*first, **named), targets[:1])
        alone = torch.autograd.grad(total, list(params.values()), allow_unused=True, materialize_grads=True)
    size = torch.stack([one.norm().double() for one in alone]).norm()
    for param, wanted in zip(params.values(), alone, strict=True):
        here = [use for use in uses if use.holds(param)]
        try:
            found = sum((per_example(use, param, slice(0, 1))[0] for use in here), torch.zeros_like(wanted))
        except RuntimeError:  # a layer without a vmap rule
            return False
        if (found - wanted).norm() > 0.05 * wanted.norm() + 1e-3 * size:
            return False
    return True


def _whole_model(
    model: nn.Module,
    params: Mapping[str, Tensor],
    loss_sum: LossSum,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    targets: Tensor,
) -> dict[str, Tensor]:
    """By the gradients of single examples that VOGN uses."""
    given = (args, dict(kwargs))
    leaves = tuple(leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor))

    def loss(network: Callable[..., Any], inputs: Any, wanted: Tensor) -> Tensor:
        values = iter(inputs)
        first, named = tree_map(lambda x: next(values) if isinstance(x, Tensor) else x, given)
        return loss_sum(network(*first, **named), wanted)

    squares = example_gradients(model, loss, leaves, targets).squares
    return {name: squares[param] * len(targets) for name, param in params.items()}


def _rows(tree: Any, rows: slice) -> Any:
    return tree_map(lambda x: x[rows] if isinstance(x, Tensor) else x, tree)
