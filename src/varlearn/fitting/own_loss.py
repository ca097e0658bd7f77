"""A loss that the user gave: called with targets in the shape of the outputs, and checked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from varlearn.train.training_parts import Loss

_FEWEST = 8  # examples of a batch that is halved; fewer cannot tell a sum from a mean


class OwnLoss(nn.Module):
    """Calls a user's loss. The targets of a regression get the shape of the outputs, so that nothing is broadcast.

    Args:
        loss: from outputs and targets to the mean loss.

    >>> loss = OwnLoss(nn.functional.mse_loss)
    >>> loss(torch.zeros(2, 1, requires_grad=True), torch.tensor([1.0, 3.0])).item()  # (1 + 9) / 2
    5.0
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        if not callable(loss):
            raise TypeError(
                f"loss={loss!r} must be a function of outputs and targets, e.g. torch.nn.CrossEntropyLoss(); leave it "
                "out for the loss of the task"
            )
        self.loss = loss

    def forward(self, outputs: Any, targets: Tensor) -> Tensor:
        """The loss of a batch: one number, with its graph while training."""
        if isinstance(outputs, Tensor) and targets.is_floating_point():
            targets = targets.view_as(outputs)
        value = self.loss(outputs, targets)
        if not isinstance(value, Tensor):
            raise TypeError(f"the loss returned a {type(value).__name__} and must return a tensor that has gradients")
        if value.numel() != 1:
            raise ValueError(
                f"the loss has shape {tuple(value.shape)} and must be one number, the mean over the batch; use "
                'reduction="mean"'
            )
        if torch.is_grad_enabled() and not value.requires_grad:
            raise ValueError(
                "the loss does not depend on the weights, so nothing can be learned; compute it from the outputs, "
                "without detach() and item()"
            )
        return value.reshape(())


@torch.no_grad()
def growth_with_batch(loss: OwnLoss, outputs: Any, targets: Tensor) -> float | None:
    """The loss of a batch divided by the mean loss of its halves: 1 for a mean, 2 for a sum, None for small batches.

    Args:
        loss: of the user.
        outputs: of the network for a batch.
        targets: of the batch.

    >>> summed = OwnLoss(nn.MSELoss(reduction="sum"))
    >>> growth_with_batch(summed, torch.zeros(8, 1), torch.ones(8))
    2.0
    """
    half = len(targets) // 2
    if 2 * half < _FEWEST:
        return None
    parts = [slice(0, 2 * half), slice(0, half), slice(half, 2 * half)]
    whole, *halves = (loss(_rows(outputs, part), targets[part]).item() for part in parts)
    mean = sum(halves) / 2.0
    return whole / mean if mean > 0.0 else None


def _rows(outputs: Any, part: slice) -> Any:
    return outputs[part] if isinstance(outputs, Tensor) else tuple(each[part] for each in outputs)
