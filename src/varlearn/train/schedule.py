"""The learning rate as a function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

from varlearn.optim import lr_schedule
from varlearn.train.config import Train


def lr_factor(train: Train, step: int, total: int) -> float:
    """What the peak learning rate is multiplied by; see `varlearn.optim.lr_schedule`.

    Args:
        train: warmup, warmup_from, schedule and final are read.
        step: steps taken before this one, from 0.
        total: steps of the run.

    >>> [lr_factor(Train(schedule="linear", warmup=2), step, total=6) for step in range(6)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
    """
    return lr_schedule.lr_factor(
        step, total, warmup=train.warmup, start=train.warmup_from, shape=train.schedule, final=train.final
    )
