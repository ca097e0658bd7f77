"""What to merge and how: from the command line, a TOML file, or both."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

import torch

from varlearn.merging.merge_checks import checked_weights
from varlearn.merging.merge_plan import MergePlan, merge_plan
from varlearn.merging.stored_model import StoredModel, open_model
from varlearn.merging.tensor_merge import MergeSettings, Method

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_UNITS = {"kind": "curvature", "per": "per", "n": "n", "batch_size": "batch_size"}


@dataclass(frozen=True)
class Source:
    """One model of a recipe.

    Attributes:
        path: folder or file.
        weight: w_t.
        curvature: file of h, if it is not `posterior.safetensors` in the folder.
        units: what h is, where the file does not say it: entries of `varlearn.posterior.Origin`.
    """

    path: Path
    weight: float = 1.0
    curvature: Path | None = None
    units: Mapping[str, Any] | None = None

    def open(self) -> StoredModel:
        """Its files, checked."""
        from varlearn.merging.stored_adapter import is_adapter

        if is_adapter(self.path):
            raise ValueError(f"{self.path} is a LoRA adapter, which needs its base; give it as --model")
        return open_model(self.path, self.curvature, self.units)


@dataclass(frozen=True)
class MergeRecipe:
    """The settings of a merge of files; None is the default of `varlearn.merge`.

    >>> MergeRecipe(base=Source(Path("b")), models=(Source(Path("a")),)).method
    'hessian'
    """

    base: Source | None = None
    models: Sequence[Source] = ()
    method: Method = "hessian"
    alpha: float = 1.0
    base_hess: float | None = None
    density: float = 0.2
    seed: int = 0
    gram_shrinkage: float = 0.9
    dtype: str | None = None
    skip: Sequence[str] = ()

    def changed(self, **settings: Any) -> MergeRecipe:
        """The recipe with those of the settings that are not None."""
        return replace(self, **{name: value for name, value in settings.items() if value is not None})

    def plan(self) -> MergePlan:
        """Open all files and check that they fit together."""
        if self.base is None:
            raise ValueError("no base is given; give --base, the weights that all models were finetuned from")
        if not self.models:
            raise ValueError("no model is given; give --model for each, or [[models]] in the recipe")
        if self.method not in get_args(Method):
            raise ValueError(f"method={self.method!r} must be one of {', '.join(get_args(Method))}")
        if self.dtype is not None and self.dtype not in DTYPES:
            raise ValueError(
                f"dtype={self.dtype!r} must be one of {', '.join(DTYPES)}; leave it out to keep the base's"
            )
        weights = checked_weights([float(source.weight) for source in self.models], len(self.models))
        numbers = (self.alpha, self.density, self.seed, self.gram_shrinkage)
        settings = MergeSettings(self.method, weights, *numbers)
        from varlearn.merging.stored_adapter import open_adapter

        base = self.base.open()
        models = [open_adapter(source.path, base, source.units) or source.open() for source in self.models]
        dtype = DTYPES[self.dtype] if self.dtype is not None else None
        return merge_plan(base, models, settings, dtype=dtype, base_hess=self.base_hess, skip=self.skip)


def read_recipe(path: Path) -> MergeRecipe:
    """A recipe from a TOML file; its paths are relative to the file.

    >>> import tempfile
    >>> lines = ['base = "b"', 'method = "ties"', "[[models]]", 'path = "a"', "weight = 0.5"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "m.toml").write_text(chr(10).join(lines))
    ...     recipe = read_recipe(Path(folder, "m.toml"))
    >>> recipe.method, recipe.models[0].path.name, recipe.models[0].weight
    ('ties', 'a', 0.5)
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        raise ValueError(f"{path}: recipes in TOML need Python 3.11; give --base, --model and --method instead")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} does not exist; give a TOML file with base and [[models]]") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML: {error}") from error
    known = {item.name: item for item in fields(MergeRecipe)}
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"{path}: {name!r} is no setting of a merge; it must be one of {', '.join(known)}")
        wanted = _kind(name)
        if not isinstance(value, wanted) or isinstance(value, bool):
            kinds = " or ".join(kind.__name__ for kind in wanted)
            raise ValueError(f"{path}: {name} = {value!r} must be of type {kinds}")
    given = dict(values)
    if "base" in given:
        given["base"] = _source(path, "base", given["base"])
    if "models" in given:
        given["models"] = tuple(_source(path, f"models[{n}]", one) for n, one in enumerate(given["models"]))
    return MergeRecipe(**given)


def _kind(name: str) -> tuple[type, ...]:
    if name in ("alpha", "base_hess", "density", "gram_shrinkage"):
        return (int, float)
    return {"base": (str, dict), "models": (list,), "skip": (list,), "seed": (int,)}.get(name, (str,))


def _source(recipe: Path, where: str, value: Any) -> Source:
    table = {"path": value} if isinstance(value, str) else value
    allowed = ("path", "weight", "curvature", *_UNITS)
    if not isinstance(table, dict) or not isinstance(table.get("path"), str):
        raise ValueError(f"{recipe}: {where} = {value!r} must have a path")
    for name in table:
        if name not in allowed:
            raise ValueError(f"{recipe}: {where} has {name!r}; it must be one of {', '.join(allowed)}")
    weight = table.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise ValueError(f"{recipe}: {where}.weight = {weight!r} must be a number")
    curvature = table.get("curvature")
    return Source(
        recipe.parent / table["path"],
        float(weight),
        None if curvature is None else recipe.parent / curvature,
        {_UNITS[name]: table[name] for name in _UNITS if name in table} or None,
    )
