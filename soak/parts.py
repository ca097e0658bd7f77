"""All parts, in the order in which they run."""

from __future__ import annotations

from soak import arguments, damage, faults, fuzz, gradients, interrupts, kills, load, mutation, rank_kills, tensors
from soak.part import Part

_MODULES = damage, faults, fuzz, arguments, kills, rank_kills, gradients, interrupts, tensors, load, mutation
PARTS: dict[str, Part] = {module.PART.name: module.PART for module in _MODULES}
