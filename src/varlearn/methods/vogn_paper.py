"""VOGN as the published runs had it: without damping, and with IVON's average as the momentum."""

from __future__ import annotations

from dataclasses import dataclass

from varlearn.methods.curvature_passes import Labels
from varlearn.methods.shared_settings import Optim
from varlearn.methods.vogn import GaussNewtonMethod


@dataclass(frozen=True)
class VOGNPaperSettings(Optim):
    """Settings of the published VOGN; the defaults are IVON's, as the paper says.

    Attributes:
        labels: whose gradients are squared: "true" labels, as in the published runs, or "sampled" ones.
    """

    name: str = "vogn-paper"
    labels: Labels = "true"


class VOGNPaperMethod(GaussNewtonMethod[VOGNPaperSettings]):
    """The prior inside the momentum, which is a debiased average; no damping.

    >>> from torch import nn
    >>> from varlearn.methods import Facts
    >>> facts = Facts(n=100, batch_size=10, steps=50, task="classification")
    >>> group = VOGNPaperMethod(VOGNPaperSettings()).optimizer(nn.Linear(1, 1), facts).param_groups[0]
    >>> group["lr"], group["damping"], group["momentum"]
    (0.2, 0.0, 'average')
    """

    name = "vogn-paper"
    label = "VOGN (paper)"
    cost = "as VOGN"
    Settings = VOGNPaperSettings
    momentum = "average"
