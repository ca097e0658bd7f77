"""The two scales of a recipe, and IVON's settings for runs as short as the small ones."""

from __future__ import annotations

from typing import Literal

from varlearn import presets
from varlearn.train.config import Optim

Scale = Literal["paper", "small"]


def short_ivon(n: int, steps: int, like: Literal["sgd", "adamw"] = "sgd") -> Optim:
    """`presets.short_run` as an `Optim`.

    Args:
        n: number of training examples.
        steps: optimizer steps of the whole run.
        like: "sgd" or "adamw", whichever usually trains such a network.

    >>> short_ivon(n=1_000, steps=1_200).ess
    10000.0
    """
    settings = presets.short_run(n=n, steps=steps, like=like)
    beta1, beta2 = settings.pop("betas")
    return Optim(name="ivon", beta1=beta1, beta2=beta2, **settings)
