"""`merge`: the weights of one model from several that were finetuned from the same base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import torch
from torch import Tensor

from varlearn.merging.curvature_units import Units, own_curvature
from varlearn.merging.merge_checks import (
    check_base_hess,
    check_finite_merge,
    check_grams,
    check_models,
    check_numbers,
    check_tensors,
    checked_weights,
)
from varlearn.merging.tensor_merge import CURVED, MergeSettings, Method, Reader, TensorInputs, merged_pieces
from varlearn.posterior import DiagGaussian
from varlearn.posterior.draw import positions
from varlearn.types import Params, Posterior


@torch.no_grad()
def merge(
    base: Mapping[str, Tensor] | Posterior,
    posteriors: Sequence[Posterior],
    *,
    weights: Sequence[float] | None = None,
    alpha: float = 1.0,
    method: Method = "hessian",
    hess: Sequence[Mapping[str, Tensor]] | None = None,
    base_hess: Mapping[str, Tensor] | float | None = None,
    inputs: Sequence[Mapping[str, Tensor]] | None = None,
    gram_shrinkage: float = 0.9,
    density: float = 0.2,
    seed: int = 0,
) -> Params:
    """Merge models that were finetuned from the same base: theta = theta_0 + sum_t c_t (theta_t - theta_0).

    theta_0 are the weights of the base and theta_t the mean of posterior t. The method gives the coefficients c_t of
    each weight, with a_t = alpha w_t:

    - "hessian": c_t = a_t (h_0 + h_t) / (h_0 + sum_s a_s h_s), the paper's formula. h is the posteriors' own curvature,
      which IVON and VAdamW learn during training. h_0 = infinity gives task arithmetic.
    - "average": c_t = alpha w_t / sum_s w_s.
    - "task_arithmetic": c_t = a_t.
    - "ties": the largest changes that agree in sign, averaged.
    - "dare": a_t / density for changes drawn at random, 0 for the others.
    - "fisher": c_t = alpha w_t h_t / sum_s w_s h_s; the base counts only if alpha is not 1.
    - "regmean": linear layers whose outputs are nearest to those of all models (needs `inputs`); other tensors: the
      average.

    Curvatures are added, so all must belong to the sum of the losses over a data set. Those of a posterior are
    converted with its origin (`varlearn.posterior.Origin`); one that does not say its units is refused. Negative ones
    count as 0. Sums are computed in float64. Frozen parameters and buffers are not merged: load the
    result into the base's model.

    Args:
        base: theta_0, by name, or a posterior with this mean.
        posteriors: the models. Their order does not matter, except to the random numbers of "dare".
        weights: w_t >= 0, one per model; 1 by default.
        alpha: one factor >= 0 for all models.
        method: how the coefficients are computed.
        hess: curvatures for "hessian" and "fisher" in place of the posteriors' own, for the sum of the losses: squared
            gradients of single examples, added up over the data set, say. With them a posterior may be a `Point`.
        base_hess: h_0 for "hessian", for the sum of the losses. By default that of a base which is a `DiagGaussian`,
            and 0 for any other base.
        inputs: for "regmean", X^T X of the inputs to each linear layer, one dictionary per model; see
            `varlearn.merging.input_grams`.
        gram_shrinkage: factor of the off-diagonals of X^T X, between 0 and 1.
        density: fraction of the changes that "ties" and "dare" keep.
        seed: of "dare".

    Returns:
        The merged weights, with the names, dtypes and devices of the base.

    >>> from varlearn.posterior import Origin
    >>> def posterior(mean: float, h: float) -> DiagGaussian:
    ...     known = Origin(method="ivon", curvature="ivon", n=100)
    ...     return DiagGaussian({"w": torch.tensor([mean])}, {"w": torch.tensor([h])}, ess=100.0, origin=known)
    >>> base, models = {"w": torch.tensor([0.0])}, [posterior(1.0, 0.3), posterior(-1.0, 0.1)]
    >>> round(merge(base, models)["w"].item(), 4)  # 0.3 / 0.4 - 0.1 / 0.4
    0.5
    >>> merge(base, models, method="average")["w"].item()
    0.0
    """
    if method not in get_args(Method):
        raise ValueError(f"method={method!r} must be one of {', '.join(get_args(Method))}")
    check_models(base, posteriors)
    settings = MergeSettings(method, checked_weights(weights, len(posteriors)), alpha, density, seed, gram_shrinkage)
    check_numbers(settings)
    start = dict(base) if isinstance(base, Mapping) else base.mean
    if not start:
        raise ValueError("base={} names no tensor; give the weights that all models were finetuned from")
    check_tensors("base", start, start)
    models = [posterior.mean for posterior in posteriors]
    for index, model in enumerate(models):
        check_tensors(f"posteriors[{index}].mean", model, start)
    curvatures = _curvatures(posteriors, hess, start) if method in CURVED else []
    prior, units = _base_curvature(base, base_hess, start) if method == "hessian" else (0.0, Units())
    check_grams(inputs, start, len(models), method)
    rank = positions(start)
    merged: Params = {}
    for name, tensor in start.items():
        one = TensorInputs(
            tensor.shape,
            rank[name],
            _reader(tensor),
            [_reader(model[name]) for model in models],
            [(_reader(values[name]), its) for values, its in curvatures],
            (_reader(prior[name]), units) if isinstance(prior, Mapping) else prior,
            [grams[name] for grams in inputs] if inputs is not None and name in inputs[0] else None,
        )
        pieces = list(merged_pieces(settings, one))
        merged[name] = torch.cat(pieces).view(tensor.shape) if pieces else tensor.detach().clone()
        check_finite_merge(name, merged[name], alpha)
    return merged


def _reader(tensor: Tensor) -> Reader:
    flat = tensor.detach().reshape(-1)
    return lambda start, stop: flat[start:stop]


def _curvatures(
    posteriors: Sequence[Posterior], hess: Sequence[Mapping[str, Tensor]] | None, base: Mapping[str, Tensor]
) -> list[tuple[Mapping[str, Tensor], Units]]:
    """The curvature of each model, and its units."""
    found: list[tuple[Mapping[str, Tensor], Units]] = []
    if hess is None:
        found += [own_curvature(f"posteriors[{index}]", one) for index, one in enumerate(posteriors)]
    elif len(hess) == len(posteriors):
        found += [(values, Units()) for values in hess]
    else:
        raise ValueError(
            f"hess has {len(hess)} entries for {len(posteriors)} posteriors; give one dictionary per posterior"
        )
    for index, (values, _) in enumerate(found):
        check_tensors(f"posteriors[{index}].hess" if hess is None else f"hess[{index}]", values, base, dtypes=False)
    return found


def _base_curvature(
    base: Mapping[str, Tensor] | Posterior, base_hess: Mapping[str, Tensor] | float | None, start: Mapping[str, Tensor]
) -> tuple[Mapping[str, Tensor] | float, Units]:
    """h_0 and its units; a number belongs to the sum of the losses."""
    units = Units()
    if base_hess is None and isinstance(base, DiagGaussian):
        base_hess, units = own_curvature("base", base)
    if isinstance(base_hess, Mapping):
        check_tensors("base_hess", base_hess, start, dtypes=False)
        return base_hess, units
    number = 0.0 if base_hess is None else float(base_hess)
    check_base_hess(number)
    return number, units
