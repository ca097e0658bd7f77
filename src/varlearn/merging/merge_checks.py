"""What `merge` refuses, each with the value, the rule and the cure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from torch import Tensor

from varlearn.merging.tensor_merge import MergeSettings, Method


def checked_weights(weights: Sequence[float] | None, models: int) -> list[float]:
    """One weight per model, 1 by default.

    >>> checked_weights([1.0], models=2)
    Traceback (most recent call last):
    ...
    ValueError: weights=[1.0] has 1 entries for 2 posteriors; give one weight per posterior
    """
    if models == 0:
        raise ValueError("posteriors=[] names no model; a merge needs at least one")
    if weights is None:
        return [1.0] * models
    if not isinstance(weights, Sequence) or not all(isinstance(one, Real) for one in weights):
        raise TypeError(f"weights={weights!r} must be a list of numbers; give one weight per posterior")
    if len(weights) != models:
        raise ValueError(
            f"weights={list(weights)} has {len(weights)} entries for {models} posteriors; give one weight per posterior"
        )
    if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise ValueError(f"weights={list(weights)} must be >= 0, finite and not all 0; 1 for each model is usual")
    return [float(weight) for weight in weights]


def check_models(base: Any, posteriors: Any) -> None:
    """Refuse a base without weights, and models that are not a list of posteriors.

    >>> check_models(None, [])
    Traceback (most recent call last):
    ...
    TypeError: base is a NoneType and must be the weights that all models were finetuned from, by name, or a posterior
    """
    if not isinstance(base, Mapping) and not hasattr(base, "mean"):
        raise TypeError(
            f"base is a {type(base).__name__} and must be the weights that all models were finetuned from, by name, or "
            "a posterior"
        )
    if not isinstance(posteriors, Sequence):
        raise TypeError(f"posteriors is a {type(posteriors).__name__} and must be a list of posteriors; write [...]")
    for index, one in enumerate(posteriors):
        if not isinstance(getattr(one, "mean", None), Mapping):
            raise TypeError(
                f"posteriors[{index}] is a {type(one).__name__} and must be a posterior with a mean; "
                "Point(weights) makes one of weights"
            )


def check_numbers(settings: MergeSettings) -> None:
    """Refuse a factor or a fraction out of range.

    >>> check_numbers(MergeSettings("ties", [1.0], density=0.0))
    Traceback (most recent call last):
    ...
    ValueError: density=0.0 must be > 0 and <= 1; 0.2 keeps one change in five
    """
    for name in ("alpha", "density", "gram_shrinkage", "seed"):
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, Integral if name == "seed" else Real):
            kind = "a whole number" if name == "seed" else "a number"
            raise TypeError(f"{name}={value!r} must be {kind}; leave it out for the default")
    if not 0 <= settings.alpha < math.inf:
        raise ValueError(f"alpha={settings.alpha} must be >= 0 and finite; 1 is usual")
    if not 0 < settings.density <= 1:
        raise ValueError(f"density={settings.density} must be > 0 and <= 1; 0.2 keeps one change in five")
    if not 0 <= settings.gram_shrinkage <= 1:
        raise ValueError(f"gram_shrinkage={settings.gram_shrinkage} must be between 0 and 1; 0.9 is usual")


def check_base_hess(number: float) -> None:
    """Refuse an h_0 that is no curvature.

    >>> check_base_hess(-1.0)
    Traceback (most recent call last):
    ...
    ValueError: base_hess=-1.0 must be >= 0 and finite; for an infinite one use method='task_arithmetic'
    """
    if not 0 <= number < math.inf:
        raise ValueError(
            f"base_hess={number} must be >= 0 and finite; for an infinite one use method='task_arithmetic'"
        )


def check_grams(
    grams: Sequence[Mapping[str, Tensor]] | None, base: Mapping[str, Tensor], models: int, method: Method
) -> None:
    """Refuse inputs of RegMean that do not fit the layers.

    >>> check_grams(None, {}, 2, "regmean")
    Traceback (most recent call last):
    ...
    ValueError: method='regmean' needs inputs=, X^T X of each layer for each model; make them with \
varlearn.merging.input_grams(model, loader)
    """
    if grams is None:
        if method == "regmean":
            raise ValueError(
                "method='regmean' needs inputs=, X^T X of each layer for each model; make them with "
                "varlearn.merging.input_grams(model, loader)"
            )
        return
    if len(grams) != models:
        raise ValueError(f"inputs has {len(grams)} entries for {models} posteriors; give one dictionary per posterior")
    for index, found in enumerate(grams):
        if found.keys() != grams[0].keys():
            odd = sorted(found.keys() ^ grams[0].keys())
            raise ValueError(
                f"inputs[{index}] and inputs[0] differ in {odd}; make both from models of one architecture"
            )
        for name, gram in found.items():
            if name not in base:
                raise ValueError(f"inputs[{index}][{name!r}] belongs to no tensor of the base; leave it out")
            wanted = (base[name].shape[-1],) * 2
            if base[name].dim() != 2 or tuple(gram.shape) != wanted:
                raise ValueError(
                    f"inputs[{index}][{name!r}] has shape {tuple(gram.shape)}, but base[{name!r}] of shape "
                    f"{tuple(base[name].shape)} needs {wanted}; use varlearn.merging.input_grams"
                )
            if not gram.isfinite().all():
                raise ValueError(f"inputs[{index}][{name!r}] has NaN or infinite entries; they must be finite")


def check_finite_merge(name: str, merged: Tensor, alpha: float) -> None:
    """Refuse a result that overflows its dtype.

    >>> import torch
    >>> check_finite_merge("w", torch.tensor([1.0]), alpha=1.0)
    """
    if not merged.isfinite().all():
        raise ValueError(f"the merged {name!r} is too large for {merged.dtype}; use a smaller alpha={alpha}")


def check_tensors(what: str, values: Mapping[str, Tensor], base: Mapping[str, Tensor], *, dtypes: bool = True) -> None:
    """Refuse tensors that do not fit the base, or are not finite.

    Args:
        what: name of the tensors in messages.
        values: the tensors of one model.
        base: names, shapes and dtypes to have.
        dtypes: whether the dtypes must be the same; those of curvatures need not.
    """
    missing, unexpected = sorted(base.keys() - values.keys()), sorted(values.keys() - base.keys())
    if missing or unexpected:
        raise ValueError(
            f"{what} and base must have the same names: {what} lacks {missing} and has {unexpected} besides; "
            "merge models of one architecture, and give only their trained weights"
        )
    for name, value in values.items():
        place, wanted = f"{what}[{name!r}]", base[name]
        if value.shape != wanted.shape:
            raise ValueError(
                f"{place} has shape {tuple(value.shape)}, but base[{name!r}] has {tuple(wanted.shape)}; "
                "merge models of one architecture"
            )
        if not value.is_floating_point():
            raise ValueError(f"{place} is {value.dtype}; only floats can be merged, leave other tensors out")
        if dtypes and value.dtype != wanted.dtype:
            raise ValueError(
                f"{place} is {value.dtype}, but base[{name!r}] is {wanted.dtype}; all models must have one dtype, "
                "cast them with posterior.to(dtype=...)"
            )
        if not value.isfinite().all():
            raise ValueError(f"{place} has NaN or infinite entries; they must be finite, use a good checkpoint")
