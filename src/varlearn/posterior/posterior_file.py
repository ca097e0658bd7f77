"""Posteriors as safetensors files.

Tensors are named "mean/<weight>", "hess/<weight>" and so on ("var", "deviations", "left", "right", "scale",
"prior_mean", "fixed"), those of a mixture "0/mean/<weight>" for component 0. The metadata (see `sealed`) say what the
tensors mean: {"card", "format": "varlearn.posterior", "format_version", "posterior": {"kind", ...}, "sha256"}.

The entry "posterior" has "kind", "tied" and "has_fixed"; Gaussians have "temperature" and what is known of "method",
"curvature", "per", "n", "batch_size" and "base_sha256" (see `Origin`); a DiagGaussian has "ess" and "weight_decay".
Version 1 lacks temperature and origin; the temperature was always 1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from varlearn.core.shards import is_sharded
from varlearn.files import sealed
from varlearn.files.formats import CURE, FileFormatError, check_format, entry, rebuilding, shown
from varlearn.posterior.binding import check_fits
from varlearn.posterior.discrete import Mixture, Point, components
from varlearn.posterior.gaussian import DiagGaussian
from varlearn.posterior.kronecker import KroneckerGaussian
from varlearn.posterior.lowrank import LowRankGaussian
from varlearn.posterior.origin import Origin
from varlearn.types import Params, Posterior

FORMAT = "varlearn.posterior"
FORMAT_VERSION = 2
READABLE = (1, FORMAT_VERSION)

_PARTS: dict[type, tuple[str, ...]] = {
    DiagGaussian: ("mean", "hess", "prior_mean", "fixed"),
    LowRankGaussian: ("mean", "var", "deviations", "fixed"),
    KroneckerGaussian: ("mean", "left", "right", "scale", "fixed"),
    Point: ("mean", "fixed"),
}
_KINDS = {kind.__name__: kind for kind in _PARTS}


def save(posterior: Posterior, path: str | os.PathLike[str], card: str | None = None) -> None:
    """Write a posterior to `path`, atomically: the file is whole or unchanged.

    Args:
        posterior: a `DiagGaussian`, `LowRankGaussian`, `KroneckerGaussian`, `Point` or `Mixture` of them.
        path: by custom "posterior.safetensors".
        card: one line for people that says what it is; the posterior's repr where None.

    >>> import tempfile
    >>> q = DiagGaussian({"w": torch.ones(2)}, {"w": torch.ones(2)}, ess=100.0, weight_decay=0.01)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(q, f"{folder}/posterior.safetensors")
    ...     again = load(f"{folder}/posterior.safetensors")
    >>> torch.equal(again.sample(seed=3)["w"], q.sample(seed=3)["w"])
    True
    """
    tensors, description = _describe(posterior)
    if any(map(is_sharded, tensors.values())):
        raise ValueError("the posterior's tensors are sharded; save posterior.gathered(), on one rank")
    metadata = {
        "card": repr(posterior) if card is None else card,
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "posterior": description,
    }
    sealed.write(path, tensors, metadata)


def load(
    path: str | os.PathLike[str], model: nn.Module | None = None, device: torch.device | str = "cpu"
) -> DiagGaussian | LowRankGaussian | KroneckerGaussian | Point | Mixture:
    """Read a posterior back, bit for bit.

    Args:
        path: of a file that `save` wrote.
        model: if given, a posterior that does not fit it is refused, naming the tensors at fault.
        device: where the tensors go.

    Raises:
        CorruptFileError: if a bit of the file has changed.
        FileFormatError: if the file is no posterior, or of a later version.
        ValueError: if the posterior does not fit the model.
    """
    tensors, metadata = sealed.read(path, device)
    _, version = check_format(path, metadata, {FORMAT: READABLE}, "save()")
    with rebuilding(path, "a posterior"):
        posterior = _rebuild(path, tensors, entry(path, metadata, "posterior", dict), version)
    if model is not None:
        for _, component in components(posterior):
            check_fits(component, model)
    return posterior


class Header(NamedTuple):
    """What a file says about its tensors.

    Attributes:
        kind: "DiagGaussian", "LowRankGaussian", "Point" or "Mixture".
        origin: what is known of the training, and what h is.
        tied: further names of weights that have several.
    """

    kind: str
    origin: Origin
    tied: Mapping[str, str]


def read_header(path: str | os.PathLike[str], text: str) -> Header:
    """Kind and origin of a posterior from the metadata of its file, without its tensors.

    Args:
        path: for messages.
        text: the entry "varlearn" of the file's metadata.

    >>> read_header("q.safetensors", '{"format": "other"}')
    Traceback (most recent call last):
    ...
    varlearn.files.formats.FileFormatError: q.safetensors has format 'other', not 'varlearn.posterior'; give a file ...
    """
    with rebuilding(path, "a posterior"):
        metadata = json.loads(text)
        _, version = check_format(path, metadata, {FORMAT: READABLE}, "save()")
        description = entry(path, metadata, "posterior", dict)
        where = "metadata['posterior']"
        kind = entry(path, description, "kind", str, where)
        origin = Origin.read(description) if version > 1 else Origin()
        return Header(kind, origin, {} if kind == "Mixture" else entry(path, description, "tied", dict, where))


def _describe(posterior: Posterior, prefix: str = "") -> tuple[Params, dict[str, Any]]:
    """Tensors under their names in the file, and the rest as JSON."""
    if isinstance(posterior, Mixture):
        tensors: Params = {}
        parts = []
        for number, component in enumerate(posterior.components):
            more, part = _describe(component, f"{number}/")
            tensors |= more
            parts.append(part)
        return tensors, {"kind": "Mixture", "weights": list(posterior.weights), "components": parts}
    if not isinstance(posterior, (DiagGaussian, LowRankGaussian, KroneckerGaussian, Point)):
        kind = type(posterior).__name__
        raise TypeError(f"a {kind} has no file format; save one of {', '.join(_KINDS)} or a Mixture of them")
    kind = type(posterior)
    tensors = {
        f"{prefix}{part}/{name}": value
        for part in _PARTS[kind]
        for name, value in (getattr(posterior, part) or {}).items()
    }
    description: dict[str, Any] = {"kind": kind.__name__, "tied": dict(posterior.tied)}
    description["has_fixed"] = posterior.fixed is not None
    if isinstance(posterior, (DiagGaussian, LowRankGaussian, KroneckerGaussian)):
        description |= {"temperature": posterior.temperature, **posterior.origin.known()}
    if isinstance(posterior, DiagGaussian):
        description |= {"ess": _compact(posterior.ess), "weight_decay": _compact(posterior.weight_decay)}
    return tensors, description


def _rebuild(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    description: Mapping[str, Any],
    version: int,
    prefix: str = "",
) -> Any:
    where = f"the description of component {prefix[:-1]}" if prefix else "metadata['posterior']"
    kind_name = entry(path, description, "kind", str, where)
    if kind_name == "Mixture" and not prefix:
        parts = [
            _rebuild(path, tensors, part, version, f"{number}/")
            for number, part in enumerate(entry(path, description, "components", list, where))
        ]
        return Mixture(parts, entry(path, description, "weights", list, where))
    if kind_name not in _KINDS:
        known = ", ".join([*_KINDS, *(() if prefix else ("Mixture",))])
        raise FileFormatError(f"{path}: {where}['kind'] is {shown(kind_name)} and must be one of {known}; {CURE}")
    kind = _KINDS[kind_name]
    arguments: dict[str, Any] = {
        part: {
            name.removeprefix(f"{prefix}{part}/"): value
            for name, value in tensors.items()
            if name.startswith(f"{prefix}{part}/")
        }
        for part in _PARTS[kind]
    }
    if not entry(path, description, "has_fixed", bool, where):
        arguments["fixed"] = None
    if kind is DiagGaussian:
        for name in ("ess", "weight_decay"):
            arguments[name] = entry(path, description, name, (float, int, dict), where)
    if kind is not Point and version > 1:
        arguments["temperature"] = entry(path, description, "temperature", (float, int), where)
        arguments["origin"] = Origin.read(description)
    return kind(**arguments, tied=entry(path, description, "tied", dict, where))


def _compact(numbers: Mapping[str, float]) -> float | dict[str, float]:
    """One number where all are equal."""
    values = set(numbers.values())
    return values.pop() if len(values) == 1 else dict(numbers)
