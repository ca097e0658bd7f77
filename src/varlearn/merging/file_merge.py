"""Merging models in files, out of core: one piece of one tensor at a time, resumable, and never half a result."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from varlearn.files.atomic import remove_orphans, sync_folder
from varlearn.files.checked_json import read_json, write_json
from varlearn.files.formats import CorruptFileError
from varlearn.files.locking import locked
from varlearn.files.shard_writer import write_shard
from varlearn.files.tensor_file import TensorFile, file_sha256
from varlearn.merging.merge_card import merge_card
from varlearn.merging.merge_plan import MergePlan, Step
from varlearn.merging.plan_pieces import shard_pieces
from varlearn.merging.stored_model import INDEX, RECORD, WEIGHTS, StoredModel

SHARD_BYTES = 5_000_000_000
_NOT_COPIED = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".msgpack",
    ".h5",
    ".onnx",
    ".gguf",
    "model.safetensors.index.json",
    "README.md",
    RECORD,
    "trainer_state.json",
)
_OF_A_RUN = "log.jsonl"  # a run's files tell of its training, and the result was not trained

_DTYPE = re.compile(r'("(?:torch_)?dtype"\s*:\s*")(?:float32|float16|bfloat16|float64)(")')
"""The entry of `config.json` by which `from_pretrained` chooses the dtype."""

Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)."""


def merge_files(
    plan: MergePlan, out: Path, *, shard_bytes: int = SHARD_BYTES, progress: Progress | None = None
) -> dict[str, Any]:
    """Write the merged model to a new folder, beside copies of the base's other files and a model card.

    The folder appears when everything is in it. Until then the work is in a hidden folder beside it, one shard after
    another; the same merge, started again after a kill, goes on with the shards that are not there yet. An error
    removes that folder, so that nothing is left.

    Args:
        plan: from `merge_plan`.
        out: a folder that does not exist, or is empty.
        shard_bytes: a shard is no larger, unless a single tensor is.
        progress: called after each piece.

    Returns:
        The record, which is also in `merge.json`: settings, inputs with checksums of their headers, checksums of the
        files that were written.
    """
    out = out.absolute()
    check_out(out)
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes={shard_bytes} must be >= 1; 5,000,000,000 is usual")
    record = describe(plan)
    work = out.with_name(f".{out.name}.merging")
    with _locked(work):
        _prepare(work, record | {"shard_bytes": shard_bytes})
        try:
            written = _write_shards(plan, work, shard_bytes, progress)
            _copy_rest(plan, work)
            (work / "README.md").write_text(merge_card(plan, record), encoding="utf-8")
            record |= {"files": written}
            (work / "progress.json").unlink()
            write_json(work / RECORD, record)
        except (ValueError, CorruptFileError):
            shutil.rmtree(work)
            raise
        sync_folder(work)
        if out.exists():
            out.rmdir()
        os.replace(work, out)
        sync_folder(out.parent)
    return record


def check_out(out: Path) -> None:
    """Refuse a folder that has something in it.

    >>> check_out(Path("/"))
    Traceback (most recent call last):
    ...
    ValueError: / is in use: it exists and is not empty; give --out a new folder, or remove this one
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is in use: it exists and is not empty; give --out a new folder, or remove this one")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"{out.parent} is no folder; make it first, then --out {out} is made in it")


def describe(plan: MergePlan) -> dict[str, Any]:
    """What is merged and how, as JSON; two merges with equal descriptions give equal files."""
    settings = plan.settings
    return {
        "format": "varlearn.merge",
        "format_version": 1,
        "method": settings.method,
        "alpha": settings.alpha,
        "density": settings.density,
        "seed": settings.seed,
        "gram_shrinkage": settings.gram_shrinkage,
        "base_hess": plan.base_hess,
        "skip": list(plan.skip),
        "base": _facts(plan.base),
        "models": [
            _facts(model) | {"weight": weight} for model, weight in zip(plan.models, settings.weights, strict=True)
        ],
        "dtypes": sorted({str(step.dtype).removeprefix("torch.") for step in plan.steps}),
        "merged": sum(step.merged for step in plan.steps),
        "kept": {step.name: step.reason for step in plan.steps if not step.merged},
    }


def _facts(model: StoredModel) -> dict[str, Any]:
    facts: dict[str, Any] = {"path": str(model.path), "origin": model.origin.known()}
    facts["files"] = {str(file.path): _fingerprint(file) for file in model.files()}
    return facts


def _fingerprint(file: TensorFile) -> str:
    """Of size, time of change and header: whether a file is the one that a killed merge has read."""
    state = file.path.stat()
    entries = {name: (str(one.dtype), list(one.shape), one.offset) for name, one in file.entries.items()}
    text = json.dumps([state.st_size, state.st_mtime_ns, entries, dict(file.metadata)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _locked(work: Path) -> AbstractContextManager[None]:
    """One process at a time."""
    message = f"another process is merging into {work}; wait for it, or give another --out"
    return locked(work.with_name(f"{work.name}.lock"), message)


def _prepare(work: Path, description: dict[str, Any]) -> None:
    """Keep the shards of a killed merge if it was this one, else start anew."""
    state = json.loads(json.dumps(description))
    if work.exists():
        try:
            same = read_json(work / "progress.json")["description"] == state
        except (OSError, CorruptFileError, KeyError):
            same = False
        if same:
            remove_orphans(work)
            return
        shutil.rmtree(work)
    work.mkdir()
    write_json(work / "progress.json", {"description": state, "shards": {}})


def _write_shards(plan: MergePlan, work: Path, shard_bytes: int, progress: Progress | None) -> dict[str, str]:
    shards = shards_of(plan.steps, shard_bytes)
    names = [WEIGHTS] if len(shards) == 1 else [
        f"model-{number + 1:05}-of-{len(shards):05}.safetensors" for number in range(len(shards))
    ]  # fmt: skip
    total, done = sum(step.size for step in plan.steps), 0
    state = read_json(work / "progress.json")
    for name, steps in zip(names, shards, strict=True):
        size = sum(step.size for step in steps)
        known = state["shards"].get(name)
        if known is None or not (work / name).is_file() or file_sha256(work / name) != known:
            before = done

            def report(bytes_of_shard: int, before: int = before) -> None:
                if progress is not None:
                    progress(before + bytes_of_shard, total)

            described = [(step.name, step.dtype, step.shape) for step in steps]
            here = {step.name for step in steps}
            aliases = {alias: kept for alias, kept in plan.base.tensors.aliases.items() if kept in here}
            pieces = shard_pieces(plan, steps, report)
            state["shards"][name] = write_shard(work / name, described, pieces, {"format": "pt", **aliases})
            write_json(work / "progress.json", state)
        done += size
        if progress is not None:
            progress(done, total)
    if len(shards) > 1:
        places = {step.name: name for name, steps in zip(names, shards, strict=True) for step in steps}
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        (work / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return {name: state["shards"][name] for name in names}


def shards_of(steps: Sequence[Step], limit: int) -> list[list[Step]]:
    """Consecutive tensors that fit into one file together.

    >>> import torch
    >>> steps = [Step(name, torch.Size([2]), torch.float32, True) for name in "abc"]
    >>> [[step.name for step in shard] for shard in shards_of(steps, 16)]
    [['a', 'b'], ['c']]
    """
    shards: list[list[Step]] = [[]]
    size = 0
    for step in steps:
        if shards[-1] and size + step.size > limit:
            shards.append([])
            size = 0
        shards[-1].append(step)
        size += step.size
    return shards


def _copy_rest(plan: MergePlan, work: Path) -> None:
    """Configuration and tokenizer of the base; the configuration has the dtype of the result. Nothing of a run."""
    if not plan.base.path.is_dir() or (plan.base.path / _OF_A_RUN).exists():
        return
    for path in sorted(plan.base.path.iterdir()):
        if path.is_file() and not path.name.endswith(_NOT_COPIED) and not path.name.startswith("."):
            shutil.copyfile(path, work / path.name)
    cast = any(step.dtype != plan.base.tensors.entry(step.name).dtype for step in plan.steps)
    dtypes = {str(step.dtype).removeprefix("torch.") for step in plan.steps if step.dtype.is_floating_point}
    config = work / "config.json"
    if cast and len(dtypes) == 1 and config.is_file():
        text = config.read_text(encoding="utf-8")
        config.write_text(_DTYPE.sub(rf"\g<1>{dtypes.pop()}\g<2>", text), encoding="utf-8")
