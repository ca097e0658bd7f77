"""What the settings of a run may be. Errors name the setting by its dotted path, its value, the rule and the cure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Rule = tuple[str, Callable[[Any], bool], str]


def _at_least(least: int, cure: str) -> Rule:
    return f">= {least}", lambda value: value >= least, cure


_MOMENTUM: Rule = (">= 0 and < 1", lambda value: 0 <= value < 1, "0.9 is usual for beta1, 0.999 or more for beta2")
_FRACTION: Rule = ("between 0 and 1", lambda value: 0 <= value <= 1, "it is a fraction of the peak learning rate")
_POSITIVE = lambda value: 0 < value < math.inf  # noqa: E731

RULES: dict[str, Rule] = {
    "seed": _at_least(0, "use 0, 1, 2 for three runs"),
    "model.classes": _at_least(1, "use the number of classes of the data set"),
    "model.hidden": ("widths >= 1", lambda widths: all(width >= 1 for width in widths), "e.g. 50 or 200 200"),
    "data.subset": _at_least(1, "leave it out for all examples"),
    "data.batch_size": _at_least(1, "50 is the paper's"),
    "data.eval_batch_size": _at_least(1, "500 is usual"),
    "data.context": _at_least(1, "256 tokens is usual"),
    "optim.lr": (">= 0 and finite", lambda value: 0 <= value < math.inf, "0.2 is the paper's for IVON"),
    "optim.weight_decay": (">= 0 and finite", lambda value: 0 <= value < math.inf, "2e-4 is the paper's"),
    "optim.beta1": _MOMENTUM,
    "optim.beta2": _MOMENTUM,
    "optim.ess": ("> 0 and finite", _POSITIVE, "leave it out for the number of training examples"),
    "optim.hess_init": ("> 0 and finite", _POSITIVE, "0.01 to 1 is typical"),
    "optim.clip_radius": ("> 0", lambda value: value > 0, "leave it out for no clipping; 1e-3 helps transformers"),
    "optim.samples": _at_least(1, "1 is the paper's"),
    "train.epochs": _at_least(1, "one pass over the data is the least"),
    "train.steps": _at_least(1, "leave it out to count in epochs"),
    "train.warmup": _at_least(0, "0 for no warm-up"),
    "train.warmup_from": _FRACTION,
    "train.final": _FRACTION,
    "train.accumulate": _at_least(1, "1 takes a step for every batch"),
    "train.max_grad_norm": ("> 0 and finite", _POSITIVE, "leave it out for no clipping"),
    "train.eval_every": _at_least(0, "leave it out for once an epoch, 0 for the end only"),
    "train.checkpoint_every": _at_least(0, "leave it out for once an epoch, 0 for the end only"),
    "train.log_every": _at_least(1, "50 is usual"),
    "evaluate.samples": _at_least(1, "the paper uses 64"),
    "evaluate.subset": _at_least(1, "leave it out for all examples"),
}


def check(settings: Any, path: str) -> None:
    """Refuse a setting of the wrong type or outside its range; None is allowed where the type says so.

    Args:
        settings: one of the dataclasses of `config`.
        path: what precedes its fields' names in messages, e.g. "optim."

    >>> from varlearn.train.config import Optim
    >>> Optim(ess=0.0)
    Traceback (most recent call last):
    ...
    ValueError: optim.ess=0.0 must be > 0 and finite; leave it out for the number of training examples
    """
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        name, value, hint = f"{path}{field.name}", getattr(settings, field.name), hints[field.name]
        if not fits(value, hint):
            raise _wrong_type(name, value, hint)
        if value is not None and name in RULES:
            rule, holds, cure = RULES[name]
            if not holds(value):
                raise ValueError(f"{name}={value!r} must be {rule}; {cure}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type as settings use them: a whole number is a float too, a bool is no number.

    >>> (
    ...     fits(1, float),
    ...     fits(True, int),
    ...     fits("b", Literal["a", "b"]),
    ...     fits((1,), tuple[str, ...]),
    ...     fits(None, int | None),
    ... )
    (True, False, True, False, True)
    """
    match get_origin(hint):
        case origin if origin is Literal:
            return isinstance(value, str) and value in get_args(hint)
        case origin if origin in (Union, UnionType):
            return any(fits(value, part) for part in get_args(hint))
        case origin if origin is tuple:
            return isinstance(value, tuple) and all(fits(item, get_args(hint)[0]) for item in value)
    if hint in (int, float):
        kinds = (int, float) if hint is float else (int,)
        return isinstance(value, kinds) and not isinstance(value, bool) and value == value
    return isinstance(value, hint)


def _wrong_type(name: str, value: Any, hint: Any) -> ValueError:
    if get_origin(hint) is Literal:
        known = [str(choice) for choice in get_args(hint)]
        near = get_close_matches(str(value), known, n=1)
        cure = f"did you mean {near[0]!r}?" if near else f"the first is usual: {known[0]!r}"
        return ValueError(f"{name}={value!r} must be one of {', '.join(known)}; {cure}")
    wanted = getattr(hint, "__name__", None) if isinstance(hint, type) else str(hint)
    return ValueError(f"{name}={value!r} must be of type {wanted}, not {type(value).__name__}; convert it")
