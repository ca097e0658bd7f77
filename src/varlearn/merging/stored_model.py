"""A model in files: which tensors it has, what its curvature is, and how to read parts of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from varlearn.files.checked_json import parse_json, read_json
from varlearn.files.formats import CorruptFileError
from varlearn.files.sealed import KEY
from varlearn.files.tensor_file import Entry, TensorFile, file_sha256
from varlearn.merging.curvature_units import Units, units_of
from varlearn.posterior import Origin
from varlearn.posterior.posterior_file import read_header

WEIGHTS, INDEX, POSTERIOR = "model.safetensors", "model.safetensors.index.json", "posterior.safetensors"
GRAMS = "input_grams.safetensors"
RECORD = "merge.json"
_OLD = ("pytorch_model.bin", "pytorch_model.bin.index.json")


class StoredTensors:
    """Tensors by name, in one file or in shards.

    Args:
        places: name -> (file, the name in the file).
        aliases: further names of tensors that have several.
    """

    def __init__(self, places: Mapping[str, tuple[TensorFile, str]], aliases: Mapping[str, str] | None = None):
        self._places = dict(places)
        self.aliases = dict(aliases or {})

    @property
    def names(self) -> set[str]:
        """The names of the tensors, without further names."""
        return set(self._places)

    def __contains__(self, name: str) -> bool:
        return self.aliases.get(name, name) in self._places

    def entry(self, name: str) -> Entry:
        """Dtype and shape."""
        file, key = self._places[self.aliases.get(name, name)]
        return file.entries[key]

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """Some entries of a tensor, which must be finite."""
        file, key = self._places[self.aliases.get(name, name)]
        return finite(file, key, file.read(key, start, stop))

    def files(self) -> list[TensorFile]:
        """Every file once, in the order of their paths."""
        return sorted({file.path: file for file, _ in self._places.values()}.values(), key=lambda file: file.path)


def finite(file: TensorFile, key: str, values: Tensor) -> Tensor:
    """The values that were read from a file, which must be finite."""
    if values.is_floating_point() and values.itemsize > 1 and not values.isfinite().all():
        raise ValueError(
            f"{file.path}: {key!r} has NaN or infinite entries; they must be finite, use a good checkpoint"
        )
    return values


@dataclass
class StoredModel:
    """Weights and what goes with them.

    Attributes:
        path: folder or file.
        tensors: the weights and buffers.
        posterior: path of the file that has the curvature, if there is one.
        hess: h by weight, if there is a file.
        origin: what h is.
        grams: X^T X of the inputs to linear layers, if there is a file.
        fixed: names that were not trained, as far as the posterior says so.
    """

    path: Path
    tensors: StoredTensors
    posterior: Path | None = None
    hess: StoredTensors | None = None
    origin: Origin = field(default_factory=Origin)
    grams: StoredTensors | None = None
    fixed: frozenset[str] = frozenset()

    def units(self) -> Units:
        """How h is converted; refused where the file does not say what it is."""
        if self.hess is None:
            raise ValueError(
                f"{self.path} has no curvature: it must have {POSTERIOR}, which varlearn.posterior.save writes, or a "
                "recipe must name a file; or take a method without curvature"
            )
        return units_of(str(self.posterior), self.origin)

    def files(self) -> list[TensorFile]:
        """Every file that is read."""
        parts = [part for part in (self.tensors, self.hess, self.grams) if part is not None]
        return [file for part in parts for file in part.files()]


def open_model(path: Path, curvature: Path | None = None, units: Mapping[str, Any] | None = None) -> StoredModel:
    """Open a folder as Hugging Face writes it, a folder of a run, a posterior file or a plain safetensors file.

    Headers are read and compared with the size of their files. A file that has a checksum, in itself or in the
    `merge.json` beside it, is compared with it.

    Args:
        path: folder or file.
        curvature: file of h, in place of `posterior.safetensors` in the folder: a posterior, or plain safetensors with
            the names of the weights.
        units: entries of `Origin` that replace those of the file, or make up for a plain file.
    """
    model = _open(path)
    if curvature is not None:
        model = _with_curvature(model, curvature)
    if units:
        model = replace(model, origin=replace(model.origin, **units))
    for file in model.files():
        file.verify()
    _verify_merged(path, model)
    return model


def _verify_merged(folder: Path, model: StoredModel) -> None:
    """Compare the shards of a merged model with the checksums in its record."""
    record = folder / RECORD
    if not record.is_file():
        return
    known = read_json(record).get("files", {})
    for path in (file.path for file in model.tensors.files() if file.path.name in known):
        if file_sha256(path) != known[path.name]:
            raise CorruptFileError(
                f"{path} does not have the SHA-256 in {record}: it is damaged, or was changed after the merge; copy it "
                f"again, or remove {RECORD} if you changed it on purpose"
            )


def _open(path: Path) -> StoredModel:
    if path.is_file():
        return _from_file(path)
    if not path.is_dir():
        raise FileNotFoundError(f"{path} does not exist; give a folder with {WEIGHTS}, or a safetensors file")
    if (path / INDEX).is_file():
        model = StoredModel(path, _sharded(path))
    elif (path / WEIGHTS).is_file():
        model = _from_file(path / WEIGHTS)
    elif (path / POSTERIOR).is_file():
        return replace(_from_file(path / POSTERIOR), path=path)
    elif any((path / old).is_file() for old in _OLD):
        raise ValueError(
            f"{path} has its weights as pickle ({_OLD[0]}), which may run code; write them as safetensors: "
            "AutoModel.from_pretrained(...).save_pretrained(folder)"
        )
    else:
        raise ValueError(f"{path} has no {WEIGHTS} and no {INDEX}; give a folder that save_pretrained wrote")
    model = replace(model, path=path)
    if (path / POSTERIOR).is_file():
        model = _with_curvature(model, path / POSTERIOR)
    if (path / GRAMS).is_file():
        file = TensorFile(path / GRAMS)
        model = replace(model, grams=StoredTensors({name: (file, name) for name in file.entries}))
    return model


def _from_file(path: Path) -> StoredModel:
    file = TensorFile(path)
    if KEY in file.metadata:
        return _from_posterior(file)
    return StoredModel(path, StoredTensors({name: (file, name) for name in file.entries}, _aliases(file)))


def _aliases(file: TensorFile) -> dict[str, str]:
    """Further names of tied weights, where safetensors writes them."""
    return {name: kept for name, kept in file.metadata.items() if kept in file.entries and name not in file.entries}


def _from_posterior(file: TensorFile) -> StoredModel:
    header = read_header(file.path, file.metadata[KEY])
    part = {kind: _part(file, kind) for kind in ("mean", "fixed", "hess")}
    if not part["mean"]:
        raise ValueError(f"{file.path} is a {header.kind} without a single mean; give its components one by one")
    weights = StoredTensors(part["mean"] | part["fixed"], header.tied)
    hess = StoredTensors(part["hess"], header.tied) if part["hess"] else None
    return StoredModel(file.path, weights, file.path, hess, header.origin, None, frozenset(part["fixed"]))


def _part(file: TensorFile, kind: str) -> dict[str, tuple[TensorFile, str]]:
    return {name.removeprefix(f"{kind}/"): (file, name) for name in file.entries if name.startswith(f"{kind}/")}


def _with_curvature(model: StoredModel, path: Path) -> StoredModel:
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; it must be the file of the curvature of {model.path}")
    file = TensorFile(path)
    if KEY not in file.metadata:
        plain = StoredTensors({name: (file, name) for name in file.entries})
        return replace(model, posterior=path, hess=plain, origin=Origin())
    found = _from_posterior(file)
    return replace(model, posterior=path, hess=found.hess, origin=found.origin, fixed=found.fixed)


def _sharded(folder: Path) -> StoredTensors:
    path = folder / INDEX
    try:
        places = parse_json(path.read_text(encoding="utf-8"))["weight_map"]
        for name in places.values():
            if Path(name).name != name:
                raise ValueError(f"{name!r} is no plain file name")
        shards = {name: TensorFile(folder / name) for name in sorted(set(places.values()))}
    except FileNotFoundError as error:
        raise CorruptFileError(
            f"{path} names {error.filename}, which is not there; copy or download it again"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, CorruptFileError):
            raise
        raise CorruptFileError(f"{path} is no index of shards ({error!r}); copy or download it again") from error
    for name, shard in places.items():
        if name not in shards[shard].entries:
            raise CorruptFileError(
                f"{path} says that {name!r} is in {shard}, and it is not; copy or download both again"
            )
    aliases = {name: kept for shard in shards.values() for name, kept in _aliases(shard).items()}
    return StoredTensors({name: (shards[shard], name) for name, shard in places.items()}, aliases)
