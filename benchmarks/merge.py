"""Merging models in files: time and peak memory, each method in a fresh process.

`python -m benchmarks.merge FOLDER METHOD` is that process: it prints both as JSON.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.fresh import measured
from benchmarks.memory import status_bytes
from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.tables import Column
from varlearn.files.shard_writer import write_shard
from varlearn.merging.file_merge import merge_files
from varlearn.merging.merge_recipe import MergeRecipe, Source
from varlearn.merging.tensor_merge import Method

CASE, METHODS = "1B parameters in bfloat16, 2 models with curvature", ("hessian",)
_MODELS = ("a", "c")
_PIECE = 1 << 22
Shapes = dict[str, tuple[int, ...]]


def llama(layers: int, width: int, vocabulary: int) -> Shapes:
    """Names and shapes of a transformer with tied embeddings, in the proportions of Llama 3.2 1B."""
    shapes: Shapes = {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (width, width) for name in "qo"}
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (width // 4, width) for name in "kv"}
        shapes |= {f"{at}.mlp.{name}_proj.weight": (4 * width, width) for name in ("gate", "up")}
        shapes |= {f"{at}.mlp.down_proj.weight": (width, 4 * width)}
        shapes |= {f"{at}.{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
    return dict(sorted(shapes.items()))


BILLION, TINY = llama(13, 2_048, 128_256), llama(2, 32, 512)


def measure(quick: bool) -> list[Figure]:
    """Write the files, merge them with each method, remove them."""
    shapes = TINY if quick else BILLION
    count = sum(torch.Size(shape).numel() for shape in shapes.values())
    with tempfile.TemporaryDirectory(prefix="varlearn-merge-") as name:
        folder = Path(name)
        for number, model in enumerate(("base", *_MODELS)):
            _write(folder / model / "model.safetensors", shapes, number)
            if model != "base":
                _write(folder / model / "curvature.safetensors", shapes, 10 + number, positive=True)
        found = {method: measured("merge", str(folder), method) for method in METHODS}
    case = f"{count:,} parameters" if quick else CASE
    return [{"case": case, "contender": method, "parameters": count} | facts for method, facts in found.items()]


def _write(path: Path, shapes: Shapes, seed: int, positive: bool = False) -> None:
    path.parent.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    block = torch.randn(_PIECE, generator=generator)
    block = (block.abs() if positive else 0.02 * block).bfloat16()

    def pieces(shape: tuple[int, ...]) -> Iterator[Tensor]:
        left = torch.Size(shape).numel()
        while left > 0:
            yield block[:left]
            left -= _PIECE

    described = [(name, torch.bfloat16, torch.Size(shape)) for name, shape in shapes.items()]
    write_shard(path, described, [(name, pieces(shape)) for name, shape in shapes.items()], {"format": "pt"})


def merge_once(folder: Path, method: Method) -> dict[str, float]:
    """Seconds, and the peak above what the interpreter with its libraries held before, in GiB."""
    units = {"curvature": "fisher", "per": "sum"}
    sources = [Source(folder / name, 1.0, folder / name / "curvature.safetensors", units) for name in _MODELS]
    recipe = MergeRecipe(Source(folder / "base"), sources, method=method)
    start, before = time.perf_counter(), status_bytes("VmRSS")
    merge_files(recipe.plan(), folder / "out")
    seconds = time.perf_counter() - start
    peak = (status_bytes("VmHWM") - before) / 2**30
    size = sum(path.stat().st_size for path in (folder / "out").glob("*.safetensors"))
    shutil.rmtree(folder / "out")
    return {"seconds": seconds, "peak_gib": peak, "written_gb": size / 1e9}


def main(arguments: Sequence[str]) -> None:
    """Print the figures of one method."""
    folder, method = arguments
    print(json.dumps(merge_once(Path(folder), method)))  # type: ignore[arg-type]


PART = Part(
    name="merge",
    title="merging models in files",
    columns=(
        Column("contender", "method"),
        Column("seconds", "seconds", ".1f", is_main=True),
        Column("peak_gib", "peak above the interpreter, GiB", ".2f"),
        Column("written_gb", "result, GB", ".2f"),
    ),
    measure=measure,
)

if __name__ == "__main__":
    main(sys.argv[1:])
