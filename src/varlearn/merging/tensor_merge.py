"""Merging one tensor, piece by piece: what merging in memory and merging files have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from varlearn.merging.combination import Coefficients, combine
from varlearn.merging.curvature_rules import fisher, hessian
from varlearn.merging.curvature_units import Units
from varlearn.merging.dare import dare
from varlearn.merging.linear_rules import average, task_arithmetic
from varlearn.merging.regression_mean import regression_mean
from varlearn.merging.ties import ties, trim_bound

Method = Literal["hessian", "average", "task_arithmetic", "ties", "dare", "fisher", "regmean"]
CURVED: tuple[Method, ...] = ("hessian", "fisher")
PIECE = 2**21
"""Entries that are merged at a time."""

Reader = Callable[[int, int], Tensor]
"""(start, stop) -> these entries of a tensor, in the order of its memory."""


@dataclass(frozen=True)
class MergeSettings:
    """What is done to every tensor.

    Attributes:
        method: the rule.
        weights: w_t, one per model.
        alpha: one factor for all models.
        density: fraction of the changes that "ties" and "dare" keep.
        seed: of "dare".
        gram_shrinkage: factor of the off-diagonals of "regmean".
    """

    method: Method
    weights: Sequence[float]
    alpha: float = 1.0
    density: float = 0.2
    seed: int = 0
    gram_shrinkage: float = 0.9


@dataclass(frozen=True)
class TensorInputs:
    """One tensor of the base and of every model.

    Attributes:
        shape: of the tensor.
        position: rank of its name among all names, for random numbers.
        base: theta_0.
        models: theta_t.
        curvatures: h_t with their units.
        prior: h_0 with its units, or a number that belongs to the sum of the losses.
        grams: X^T X of each model's inputs to this layer, for "regmean".
    """

    shape: torch.Size
    position: int
    base: Reader
    models: Sequence[Reader]
    curvatures: Sequence[tuple[Reader, Units]] = ()
    prior: tuple[Reader, Units] | float = 0.0
    grams: Sequence[Tensor] | None = field(default=None)


def merged_pieces(settings: MergeSettings, inputs: TensorInputs) -> Iterator[Tensor]:
    """The merged tensor in pieces of `PIECE` entries, in the dtype and on the device of the base.

    >>> entry = lambda value: lambda start, stop: torch.tensor([value])[start:stop]
    >>> one = TensorInputs(torch.Size([1]), 0, entry(0.0), [entry(1.0), entry(3.0)])
    >>> list(merged_pieces(MergeSettings("average", [1.0, 1.0]), one))
    [tensor([2.])]
    """
    count = inputs.shape.numel()
    if settings.method == "regmean" and inputs.grams is not None:
        base = inputs.base(0, count).view(inputs.shape)
        models = [model(0, count).view(inputs.shape) for model in inputs.models]
        target = regression_mean(models, inputs.grams, settings.weights, settings.gram_shrinkage)
        yield combine(base, [target], [settings.alpha]).flatten()
        return
    bounds = [
        trim_bound(partial(_sizes, inputs, model), count, settings.density) if settings.method == "ties" else 0.0
        for model in inputs.models
    ]
    for number, start in enumerate(range(0, count, PIECE)):
        stop = min(start + PIECE, count)
        base = inputs.base(start, stop)
        models = [model(start, stop) for model in inputs.models]
        curved = [units.summed(read(start, stop).to(base.device)) for read, units in inputs.curvatures]
        prior = inputs.prior
        if isinstance(prior, tuple):
            prior = prior[1].summed(prior[0](start, stop).to(base.device))
        coefficients = _coefficients(settings, base, models, curved, prior, bounds, inputs.position, number)
        yield combine(base, models, coefficients)


def _sizes(inputs: TensorInputs, model: Reader) -> Iterator[Tensor]:
    """|theta_t - theta_0| in pieces."""
    for start in range(0, inputs.shape.numel(), PIECE):
        base = inputs.base(start, start + PIECE).double()
        yield (model(start, start + PIECE).to(base) - base).abs()


def _coefficients(
    settings: MergeSettings,
    base: Tensor,
    models: Sequence[Tensor],
    curved: Sequence[Tensor],
    prior: Tensor | float,
    bounds: Sequence[float],
    position: int,
    number: int,
) -> Coefficients:
    weights, alpha = settings.weights, settings.alpha
    match settings.method:
        case "hessian":
            return hessian(prior, curved, weights, alpha)
        case "fisher":
            return fisher(curved, weights, alpha)
        case "task_arithmetic":
            return task_arithmetic(weights, alpha)
        case "ties":
            return ties(base, models, weights, alpha, bounds)
        case "dare":
            return dare(base, weights, alpha, settings.density, settings.seed, position, number)
        case "average" | "regmean":  # tensors that are no weight matrix of a linear layer
            return average(weights, alpha)
