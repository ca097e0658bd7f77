"""Small models in files, for the tests of merging."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from varlearn.posterior import DiagGaussian, Origin, save

SHAPES = {"table.weight": (11, 4), "layer.weight": (4, 4), "layer.bias": (4,), "head.weight": (3, 4)}


def weights(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    found = {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in SHAPES.items()}
    return found | {"layer.position_ids": torch.arange(4), "norm.running_mean": torch.full((4,), 1.0 + seed)}


def learned(values: dict[str, Tensor], seed: int, **origin: Any) -> DiagGaussian:
    generator = torch.Generator().manual_seed(100 + seed)
    mean = {name: values[name].float() for name in SHAPES}
    hess = {name: torch.rand(value.shape, generator=generator) + 0.1 for name, value in mean.items()}
    fixed = {name: value for name, value in values.items() if name not in mean}
    known = Origin(**{"method": "ivon", "curvature": "ivon", "n": 50.0 * (seed + 1), **origin})
    return DiagGaussian(mean, hess, ess=100.0, weight_decay=0.1, fixed=fixed, origin=known)


def folder(path: Path, seed: int, dtype: torch.dtype = torch.float32, posterior: bool = True, **origin: Any) -> Path:
    """A model as Hugging Face writes it, with a posterior beside it."""
    path.mkdir(parents=True)
    values = weights(seed, dtype)
    save_file(values, path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text('{"model_type": "test"}')
    if posterior:
        save(learned(values, seed, **origin), path / "posterior.safetensors")
    return path


def sharded(path: Path, seed: int) -> Path:
    """The same in two shards with an index."""
    folder(path, seed)
    values = weights(seed)
    names = sorted(values)
    (path / "model.safetensors").unlink()
    places = {}
    for number, part in enumerate((names[:3], names[3:]), 1):
        shard = f"model-{number:05}-of-00002.safetensors"
        save_file({name: values[name] for name in part}, path / shard, metadata={"format": "pt"})
        places |= dict.fromkeys(part, shard)
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return path


def contents(path: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
