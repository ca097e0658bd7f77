"""From flags and files to a run: every setting of a `Run` as an optional flag, and what is given laid over a recipe."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import Field, field, fields, is_dataclass, make_dataclass
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from cyclopts import Parameter

from varlearn.files.checked_json import parse_json
from varlearn.methods import METHODS, Optim, named
from varlearn.train.config import Run, from_json, to_json

NAMED_APART = ("recipe", "scale", "seed")  # arguments of the command itself

_NAMES_IN_KEY = 100  # more are refused before they are read


class Unset:
    """The value of a flag that was not given; None is a value that can be given: `--data.subset none`."""

    def __repr__(self) -> str:
        return "unset"


UNSET = Unset()


class NotValidated:
    """Metadata of a type that pydantic then takes as it is.

    Cyclopts asks pydantic, where it is imported, about defaults too, and `UNSET` has no flag's type. Cyclopts itself
    converts and checks what was given.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, str]:
        """Pydantic's schema of anything."""
        return {"type": "any"}


def optional(cls: type) -> type:
    """A dataclass with the same fields and words, each of them unset unless given; `Optim` has those of all methods.

    >>> from varlearn.train.config import Optim
    >>> optional(Optim)(lr=0.1).beta1
    unset
    """
    made = []
    for item, hint in _all_fields(cls):
        if cls is Run and item.name in NAMED_APART:
            continue
        if is_dataclass(hint):
            nested = Parameter(group=f"{item.name}: {_summary(hint)}")(optional(hint))  # type: ignore[arg-type]
            made.append((item.name, nested, field(default_factory=nested)))
        else:
            made.append((item.name, Annotated[hint, NotValidated()], field(default=UNSET)))
    result = make_dataclass(cls.__name__, made, frozen=True)
    result.__doc__, result.__module__ = _words(cls), __name__
    return result


def dotted_names(cls: type = Run, prefix: str = "") -> list[str]:
    """The settings of a run, of all methods, under the names of their flags.

    >>> dotted_names()[:2]
    ['model.name', 'model.classes']
    """
    names: list[str] = []
    for item, hint in _all_fields(cls):
        if is_dataclass(hint):
            names += dotted_names(hint, f"{item.name}.")  # type: ignore[arg-type]
        elif cls is not Run or item.name not in NAMED_APART:
            names.append(f"{prefix}{item.name}")
    return names


def given(settings: Any) -> dict[str, Any]:
    """The fields that were set, nested as they are.

    >>> from varlearn.train.config import Optim
    >>> given(optional(Optim)(lr=0.1, ess=None))
    {'lr': 0.1, 'ess': None}
    """
    values = {item.name: getattr(settings, item.name) for item in fields(settings)}
    nested = {name: given(value) if is_dataclass(value) else value for name, value in values.items()}
    return {name: value for name, value in nested.items() if value is not UNSET and value != {}}


def laid_over(base: Run, changes: dict[str, Any]) -> Run:
    """The run with the changes made; a key that no run has is an error that names the nearest.

    A changed number of epochs takes the place of the steps of the run, which would be used otherwise.
    After a change of method, the settings that both methods have with the same default are kept. The others, such as a
    learning rate that only suits the old method, take the default of the new one.

    >>> laid_over(Run(), {"optim": {"lr": 0.5}}).optim.lr
    0.5
    >>> laid_over(Run(), {"optim": {"lrr": 0.5}})
    Traceback (most recent call last):
    ...
    ValueError: optim.lrr is not a setting of a run; did you mean optim.lr?
    """
    values = json.loads(to_json(base))
    if isinstance(optim := changes.get("optim"), dict) and optim.get("name") in ["auto", *METHODS]:
        before, after = (_defaults(kind) for kind in (type(base.optim), named(optim["name"]).Settings))
        kept = {name for name in before if name in after and before[name] == after[name]}
        values["optim"] = {name: value for name, value in values["optim"].items() if name in kept}
    if isinstance(length := changes.get("train"), dict) and "epochs" in length and "steps" not in length:
        values["train"]["steps"] = None
    try:
        return from_json(json.dumps(_merged(values, changes), default=str))  # TOML has dates, which no setting is
    except RecursionError:
        raise ValueError("the settings are nested too deeply; no setting lies deeper than two names") from None


def read_settings(path: Path) -> dict[str, Any]:
    """Settings from a TOML file, or from a JSON file such as a run's `config.json`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}; give a file of settings") from error
    try:
        values = parse_json(data.decode("utf-8")) if path.suffix == ".json" else _toml(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold settings by name, not a {type(values).__name__}")
    return values


def as_flags(changes: dict[str, Any], prefix: str = "") -> list[str]:
    """Flags that make the changes, for a command that somebody else will run.

    >>> as_flags({"optim": {"hess_init": 0.1, "ess": None}})
    ['--optim.hess_init', '0.1', '--optim.ess', 'none']
    """
    flags: list[str] = []
    for name, value in changes.items():
        if isinstance(value, dict):
            flags += as_flags(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            flags.append(f"--{prefix}{name}" if value else f"--{prefix}no-{name}")
        elif isinstance(value, tuple):
            flags += [f"--{prefix}{name}", *map(str, value)]
        else:
            flags += [f"--{prefix}{name}", "none" if value is None else str(value)]
    return flags


def _all_fields(cls: type) -> list[tuple[Field[Any], Any]]:
    """The fields of a dataclass with their types; of `Optim`, the fields of every method's settings too."""
    if cls is not Optim:
        hints = get_type_hints(cls)
        return [(item, hints[item.name]) for item in fields(cls)]
    found: dict[str, tuple[Field[Any], Any]] = {}
    for kind in _kinds_of_settings():
        hints = get_type_hints(kind)
        for item in fields(kind):
            before = found.get(item.name)
            hint = hints[item.name] if before is None else before[1] | hints[item.name]
            found[item.name] = item, hint
    names = ("auto", *METHODS)
    return [(item, Literal[names] if name == "name" else hint) for name, (item, hint) in found.items()]


def _defaults(cls: type) -> dict[str, Any]:
    return {item.name: item.default for item in fields(cls)}


def _words(cls: type) -> str:
    """The docstring of a dataclass; that of `Optim` describes the settings of every method."""
    if cls is not Optim:
        return cls.__doc__ or ""
    described: dict[str, None] = {}
    for kind in _kinds_of_settings():
        attributes = cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")[2].partition("\n\n")[0]
        described |= dict.fromkeys(attributes.splitlines())
    return "\n".join([f"{_summary(cls)}.", "", "Attributes:", *described])


def _kinds_of_settings() -> list[type[Optim]]:
    return list(dict.fromkeys([Optim, *(method.Settings for method in METHODS.values())]))


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            merged[name] = _merged(base[name], value)
        else:
            merged[name] = str(value) if value in (float("inf"), float("-inf")) else value
    return merged


def _toml(text: str) -> dict[str, Any]:
    # Python's reader needs memory that grows with the square of the number of names in a key: 40 GB for 200 kB.
    if any(piece.count(".") > _NAMES_IN_KEY for piece in re.split(r"[=,{}\[\]\n]", text)):
        raise ValueError(f"a key has more than {_NAMES_IN_KEY} names; those of settings have two, e.g. optim.lr")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            tomllib = import_module("tomli")
        except ModuleNotFoundError:
            raise ImportError("Python 3.10 reads no TOML by itself; pip install tomli, or give a JSON file") from None
    return tomllib.loads(text)


def _summary(cls: Any) -> str:
    return (cls.__doc__ or "").replace("\n", ". ").replace(";", ". ").split(". ")[0]
