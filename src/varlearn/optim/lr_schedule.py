"""Learning-rate schedules: a warm-up, then a fall to near 0. The posterior needs the fall as much as the mean does."""

from __future__ import annotations

import math
from typing import Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

Shape = Literal["cosine", "linear", "constant"]
WARMUP = 0.05  # of the steps


def lr_factor(
    step: int, total: int, *, warmup: float = WARMUP, start: float = 0.0, shape: Shape = "cosine", final: float = 0.0
) -> float:
    """What the peak learning rate is multiplied by.

    A warm-up rises linearly from `start` at step 0 to 1 at its end. Then the factor falls to `final`, which it would
    reach at step `total`.

    Args:
        step: steps taken before this one, from 0.
        total: steps of the run.
        warmup: a share of the steps below 1, rounded down, or a number of steps.
        start: see above.
        shape: of the fall; "constant" stays at 1.
        final: see above.

    >>> [lr_factor(step, total=6, warmup=2, shape="linear") for step in range(6)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
    >>> round(lr_factor(2, total=4, warmup=0, final=0.5), 6)  # halfway between 1 and 0.5
    0.75
    """
    rising = int(warmup * total if warmup < 1 else warmup)
    if step < rising:
        return start + (1.0 - start) * step / rising
    done = (step - rising) / max(1.0, total - rising)
    match shape:
        case "constant":
            return 1.0
        case "linear":
            left = 1.0 - done
        case "cosine":
            left = 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))
    return final + (1.0 - final) * left


def warmup_cosine(
    optimizer: Optimizer, steps: int | None = None, *, warmup: float = WARMUP, final: float = 0.0
) -> LambdaLR:
    """PyTorch's scheduler with a linear warm-up and a cosine to 0; call its `step()` after each of the optimizer's.

    Args:
        optimizer: any; its present learning rates are the peak.
        steps: optimizer steps of the whole run. None asks the optimizer: `VAdamW.for_loader(..., epochs=...)` knows.
        warmup: a share of the steps below 1, rounded down, or a number of steps.
        final: share of the peak that the learning rate ends at.

    >>> import torch
    >>> opt = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    >>> schedule = warmup_cosine(opt, steps=4, warmup=0)
    >>> for _ in range(2):
    ...     opt.step()
    ...     schedule.step()
    >>> round(opt.param_groups[0]["lr"], 6)  # halfway
    0.05
    """
    steps = optimizer.param_groups[0].get("steps") if steps is None else steps
    if steps is None:
        raise ValueError("steps=None, and the optimizer does not know its steps; pass steps=epochs * len(loader)")
    if steps < 1:
        raise ValueError(f"steps={steps} must be at least 1; use epochs * len(loader)")
    if not (0 <= warmup < 1 or warmup == int(warmup) >= 1):
        raise ValueError(f"warmup={warmup} must be a share between 0 and 1, or a whole number of steps; 0.05 is usual")
    return LambdaLR(optimizer, lambda step: lr_factor(step, steps, warmup=warmup, final=final))
