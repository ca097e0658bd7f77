"""The learning rate as a function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math

from varlearn.train.config import Train


def lr_factor(train: Train, step: int, total: int) -> float:
    """What the peak learning rate is multiplied by.

    A warm-up rises linearly from `warmup_from` at step 0 to 1 at step `warmup`; then the schedule falls to `final`,
    which it would reach at step `total`.

    Args:
        train: warmup, warmup_from, schedule and final are read.
        step: steps taken before this one, from 0.
        total: steps of the run.

    >>> [lr_factor(Train(schedule="linear", warmup=2), step, total=6) for step in range(6)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
    >>> round(lr_factor(Train(schedule="cosine", final=0.5), 2, total=4), 6)  # halfway between 1 and 0.5
    0.75
    """
    if step < train.warmup:
        return train.warmup_from + (1.0 - train.warmup_from) * step / train.warmup
    done = (step - train.warmup) / max(1, total - train.warmup)
    match train.schedule:
        case "constant":
            return 1.0
        case "linear":
            left = 1.0 - done
        case "cosine":
            left = 0.5 * (1.0 + math.cos(math.pi * done))
    return train.final + (1.0 - train.final) * left
