"""What a data loader tells about a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from typing import Any

from torch import Tensor
from torch.utils.data import SubsetRandomSampler

_SAME_BATCH = 1.5  # times the loader's batch, from which on B means several of its batches


def loader_facts(loader: Any, epochs: int | None = None, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """n, batch_size and, from `epochs`, steps: as far as a loader of examples tells them, and as they are given.

    A B that is larger than the loader's batch means accumulation, or several ranks: a pass then has fewer steps than
    the loader has batches, or each rank's loader is as much shorter. A loader without a length has n / B steps a pass.

    Args:
        loader: a `DataLoader`, anything with its attributes, or a list of batches.
        epochs: passes over the loader; None if not known.
        given: any of "n", "batch_size" and "steps" that the user has said.

    >>> from torch.utils.data import DataLoader
    >>> loader_facts(DataLoader(range(100), batch_size=30), epochs=2)
    {'n': 100, 'batch_size': 30, 'steps': 8}
    >>> loader_facts(DataLoader(range(100), batch_size=10), epochs=2, given={"batch_size": 50})
    {'n': 100, 'batch_size': 50, 'steps': 4}
    """
    told = _counts(loader)
    facts = told | {name: value for name, value in (given or {}).items() if name in ("n", "batch_size", "steps")}
    if epochs is not None:
        if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
            raise ValueError(f"epochs={epochs!r} must be a whole number >= 1, or None; pass steps for a part of a pass")
        if "steps" not in facts:
            facts["steps"] = epochs * _steps_of_a_pass(loader, told, facts, epochs)
    return facts


def _counts(loader: Any) -> dict[str, int]:
    """n and batch_size, in examples."""
    if isinstance(loader, (list, tuple)):
        sizes = [_examples(batch) for batch in loader]
        return {"n": sum(sizes), "batch_size": sizes[0]} if sizes and all(sizes) else {}
    found: dict[str, int] = {}
    batches, dataset = getattr(loader, "batch_sampler", None), getattr(loader, "dataset", None)
    sampler = getattr(batches, "sampler", getattr(loader, "sampler", None))
    if isinstance(dataset, Sized):
        found["n"] = len(sampler if isinstance(sampler, SubsetRandomSampler) else dataset)
    size = getattr(loader, "batch_size", None) or getattr(batches, "batch_size", None)
    if size is not None:
        found["batch_size"] = min(size, found["n"]) if found.get("n") else size
    return found


def _examples(batch: Any) -> int:
    """The length of a batch's first tensor, or of the second in a pair: inputs may have time first. 0 without one."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.dim() else 0
    parts = list(batch.values()) if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else []
    lengths = [count for count in map(_examples, parts) if count]
    return lengths[-1 if len(parts) == len(lengths) == 2 else 0] if lengths else 0


def _steps_of_a_pass(loader: Any, told: Mapping[str, int], facts: Mapping[str, Any], epochs: int) -> int:
    complete = {"n", "batch_size"} <= facts.keys() and facts["batch_size"] > 0
    by_terms = math.ceil(facts["n"] / facts["batch_size"]) if complete else 0
    try:
        batches = len(loader)
    except TypeError:
        if not by_terms:
            raise ValueError(
                f"the loader has no length, so epochs={epochs} does not tell the number of steps; pass n and "
                "batch_size, or steps"
            ) from None
        return by_terms
    if not by_terms or not {"n", "batch_size"} <= told.keys():
        return batches
    together = facts["batch_size"] / told["batch_size"] / (facts["n"] / told["n"])
    return batches if together < _SAME_BATCH else min(batches, max(by_terms, math.ceil(batches / together)))
