"""What a training is made of, for a run of registered names and for a user's own network alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from varlearn.methods import Batch, Facts, Method
from varlearn.train.config import Train

Loss = Callable[[Any, Tensor], Tensor]
"""From the outputs of the network and the targets of a batch to the mean loss."""


class PassBatches(Protocol):
    """The batches of training, as a function of the pass over the data and the place in it."""

    def __len__(self) -> int:
        """Batches in one pass."""
        ...

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The pairs (inputs, targets) of pass `number`, from batch `start` on."""
        ...


@dataclass(frozen=True)
class TrainingParts:
    """A network and its data, with all that decides its steps.

    Attributes:
        model: the network, prepared by the method, on its device.
        method: how steps are taken, and what results.
        facts: what the method knows about the run.
        train: schedule, accumulation, clipping and precision.
        batches: to learn from.
        plain: all training examples in their order, without augmentation; may be read several times.
        loss: a module among losses is saved with the checkpoints.
        held_out: the validation examples in their order, if there are some; may be read several times.
    """

    model: nn.Module
    method: Method[Any]
    facts: Facts
    train: Train
    batches: PassBatches
    plain: Iterable[Batch]
    loss: Loss
    held_out: Iterable[Batch] | None = None
