"""All parts, in the order in which they run."""

from __future__ import annotations

from soak import damage, faults, fuzz, kills, rank_kills
from soak.part import Part

PARTS: dict[str, Part] = {module.PART.name: module.PART for module in (damage, faults, fuzz, kills, rank_kills)}
