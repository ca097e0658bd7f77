"""All parts, in the order in which they run."""

from __future__ import annotations

from benchmarks import blocks, calls, memory, merge, methods, noise, predict, scaling, start, step, train

_MODULES = (step, calls, train, memory, scaling, blocks, predict, merge, noise, methods, start)
PARTS = {module.PART.name: module.PART for module in _MODULES}
