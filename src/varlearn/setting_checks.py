"""Checks of settings: dataclasses whose `RULES` say what each field may be.

Errors name the setting by its dotted path, its value, the rule and the cure.
"""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Rule = tuple[str, Callable[[Any], bool], str]
"""What a value must be, in words; whether a value is that; and what to use instead."""


_A_NUMBER: Rule = ("a number", lambda value: value == value, "leave it out for the default")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 200


def shortened(value: Any) -> str:
    """The value's text for a message: a file of settings may hold very long values.

    >>> shortened(0.5), len(shortened("x" * 10**6)), len(shortened([list(range(1000))] * 1000)) < 500
    ('0.5', 200, True)
    """
    return _SHORT.repr(value)


def at_least(least: int, cure: str) -> Rule:
    """The rule of a number that has a lower bound.

    >>> at_least(1, "1 is usual")[0]
    '>= 1'
    """
    return f">= {least}", lambda value: value >= least, cure


def not_negative(cure: str) -> Rule:
    """The rule of a finite number that may be 0."""
    return ">= 0 and finite", lambda value: 0 <= value < math.inf, cure


def positive(cure: str) -> Rule:
    """The rule of a finite number above 0."""
    return "> 0 and finite", lambda value: 0 < value < math.inf, cure


def whole_number(name: str, value: Any, least: int, cure: str) -> int:
    """An argument as an int; whole numbers of NumPy are taken, bools and floats are not.

    >>> whole_number("epochs", 2.5, 1, "20 is usual")
    Traceback (most recent call last):
    ...
    ValueError: epochs=2.5 must be a whole number >= 1; 20 is usual
    """
    if hasattr(value, "__index__") and not isinstance(value, bool) and (number := operator.index(value)) >= least:
        return number
    raise ValueError(f"{name}={shortened(value)} must be a whole number >= {least}; {cure}")


@cache
def hints_of(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields, by name; evaluated once, because that takes longer than the checks.

    >>> from varlearn.train.config import Evaluate
    >>> hints_of(Evaluate)["samples"]
    <class 'int'>
    """
    return get_type_hints(cls)


def check(settings: Any, path: str) -> None:
    """Refuse a setting of the wrong type or outside its range; None is allowed where the type says so.

    Args:
        settings: a dataclass with a class variable `RULES`, from names of fields to rules.
        path: what precedes its fields' names in messages, e.g. "optim."

    >>> from varlearn.train.config import Optim
    >>> Optim(ess=0.0)
    Traceback (most recent call last):
    ...
    ValueError: optim.ess=0.0 must be > 0 and finite; leave it out for the number of training examples
    """
    hints, rules = hints_of(type(settings)), settings.RULES
    for field in fields(settings):
        name, value, hint = f"{path}{field.name}", getattr(settings, field.name), hints[field.name]
        if not fits(value, hint):
            raise _wrong_type(name, value, hint)
        if value is not None and (field.name in rules or value != value):
            rule, holds, cure = rules.get(field.name, _A_NUMBER)
            if not holds(value):
                raise ValueError(f"{name}={shortened(value)} must be {rule}; {cure}")


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
        return isinstance(value, kinds) and not isinstance(value, bool)
    return isinstance(value, hint)


def _wrong_type(name: str, value: Any, hint: Any) -> ValueError:
    if get_origin(hint) is Literal:
        known = [str(choice) for choice in get_args(hint)]
        near = get_close_matches(str(value)[:100], known, n=1)
        cure = f"did you mean {near[0]!r}?" if near else f"the first is usual: {known[0]!r}"
        return ValueError(f"{name}={shortened(value)} must be one of {', '.join(known)}; {cure}")
    wanted = getattr(hint, "__name__", None) if isinstance(hint, type) and get_origin(hint) is None else str(hint)
    return ValueError(f"{name}={shortened(value)} must be of type {wanted}, not {type(value).__name__}; convert it")
