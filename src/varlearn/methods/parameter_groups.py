"""Parameter groups: which parameters decay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from varlearn.methods.shared_settings import Optim


def parameter_groups(model: nn.Module, settings: Optim) -> list[dict[str, Any]]:
    """The trainable parameters in groups for an optimizer, each with its weight decay.

    Args:
        model: what to train.
        settings: `weight_decay` and `matrices_only` are read.

    >>> from torch import nn
    >>> from varlearn.methods import Optim
    >>> groups = parameter_groups(nn.Linear(2, 3), Optim("sgd", weight_decay=0.1, matrices_only=True))
    >>> [(len(group["params"]), group["weight_decay"]) for group in groups]  # the weight, and the bias
    [(1, 0.1), (1, 0.0)]
    """
    params = [param for param in model.parameters() if param.requires_grad]
    if not settings.matrices_only:
        return [{"params": params, "weight_decay": settings.weight_decay}]
    matrices = [param for param in params if param.dim() >= 2]
    others = [param for param in params if param.dim() < 2]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
