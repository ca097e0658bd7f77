"""All parts, in the order in which they run."""

from __future__ import annotations

from soak import (
    arguments,
    bombs,
    damage,
    faults,
    fuzz,
    gradients,
    interrupts,
    kills,
    load,
    mutation,
    processes,
    rank_kills,
    tensors,
    threads,
)
from soak.part import Part

_FILES = damage, faults, fuzz, bombs, arguments
_TRAINING = kills, rank_kills, gradients, interrupts, threads, processes, tensors
PARTS: dict[str, Part] = {module.PART.name: module.PART for module in (*_FILES, *_TRAINING, load, mutation)}
