"""The fused path of accelerators: the packed path's arithmetic, made into kernels by inductor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from varlearn.optim import packed
from varlearn.optim.tasks import Draw, Step


def draw(tasks: Sequence[Draw]) -> None:
    """Perturb each parameter (line 2)."""
    packed.draw(tasks, _compute())


def step(tasks: Sequence[Step]) -> None:
    """Update each parameter (lines 3 to 7)."""
    packed.step(tasks, _compute())


@cache
def _compute() -> packed.Compute:
    """One kernel each for all sizes and all values of the scalars, compiled at the first use."""
    return packed.Compute(
        torch.compile(packed.sample_values, dynamic=True),
        torch.compile(packed.step_values, dynamic=True),
        in_place=False,
    )
