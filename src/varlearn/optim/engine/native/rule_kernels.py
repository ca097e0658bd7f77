"""The kernels of each rule, and how their scalars are made."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NamedTuple

from varlearn.optim.engine.native import scalars
from varlearn.optim.engine.plan import Fold, StepSettings


class RuleKernels(NamedTuple):
    """The kernels of one rule.

    Attributes:
        step: name of the kernel of lines 3 to 7.
        step_scalars: (settings, whether hhat is given) -> the scalars of a step.
        fold: name of the kernel of running means, of rules whose hhat is a product with the noise.
        fold_scalars: -> the scalars of a running mean.
    """

    step: str
    step_scalars: Callable[[StepSettings, bool], ctypes.Structure]
    fold: str = ""
    fold_scalars: Callable[[Fold], ctypes.Structure] = scalars.of_ivon_fold


RULES = {
    "ivon": RuleKernels("varlearn_ivon_step", scalars.of_ivon_step, "varlearn_ivon_fold", scalars.of_ivon_fold),
    "vadamw": RuleKernels("varlearn_vadamw_step", scalars.of_vadamw_step),
}
