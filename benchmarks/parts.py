"""All parts, in the order in which they run."""

from __future__ import annotations

from benchmarks import blocks, calls, memory, noise, predict, scaling, step, train

PARTS = {module.PART.name: module.PART for module in (step, calls, train, memory, scaling, blocks, predict, noise)}
