"""All parts, in the order in which they run."""

from __future__ import annotations

from benchmarks import blocks, memory, noise, predict, scaling, step, train

PARTS = {module.PART.name: module.PART for module in (step, train, memory, scaling, blocks, predict, noise)}
