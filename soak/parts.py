"""All parts, in the order in which they run."""

from __future__ import annotations

from soak import damage, fuzz
from soak.part import Part

PARTS: dict[str, Part] = {module.PART.name: module.PART for module in (damage, fuzz)}
