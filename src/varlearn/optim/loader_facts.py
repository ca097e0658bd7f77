"""What a data loader tells about a run."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from torch.utils.data import SubsetRandomSampler


def loader_facts(loader: Any, epochs: int | None = None) -> dict[str, int]:
    """n, batch_size and, from `epochs`, steps: as far as a loader of examples tells them.

    Args:
        loader: a `DataLoader`, or anything with its attributes.
        epochs: passes over the loader; None if not known.

    >>> from torch.utils.data import DataLoader
    >>> loader_facts(DataLoader(range(100), batch_size=30), epochs=2)
    {'n': 100, 'batch_size': 30, 'steps': 8}
    """
    sampler = getattr(loader, "batch_sampler", None)
    size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
    examples = getattr(loader, "dataset", None)
    if isinstance(chosen := getattr(loader, "sampler", None), SubsetRandomSampler):
        examples = chosen  # the others are never drawn
    found = {
        "n": len(examples) if isinstance(examples, Sized) else None,
        "batch_size": size,
        "steps": None if epochs is None else epochs * len(loader),
    }
    return {name: value for name, value in found.items() if value is not None}
