"""Batches as a function of (seed, epoch, number): what a resumed run needs is the numbers, not a state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from varlearn.data import augment as augmentation
from varlearn.data.examples import Examples
from varlearn.data.seeds import generator
from varlearn.data.stored_images import StoredImages

Batch = tuple[Tensor, Tensor]
BatchWithIds = tuple[Tensor, Tensor, Tensor]


class Batches:
    """Serve examples in batches, normalised and, for training, shuffled and augmented.

    `epoch` gives the batches of one pass for training. Iterating over the object gives every example once, in the
    stored order and as it is: what `varlearn.prediction.predict` wants. Order and augmentation are functions of (seed,
    epoch, index) alone; no random number generator is kept, and the global one is never used.

    Text for language modelling is cut into windows: inputs are `context` tokens, targets the tokens that follow each.

    With several processes, each takes every `world`-th example of one common order. `epoch` leaves out up to world - 1
    of them so that all processes take the same number of steps; iteration leaves out none.

    Args:
        examples: what `load` returns.
        batch_size: examples (windows) per batch, on one process.
        seed: of order and augmentation.
        shuffle: whether an epoch's order is random.
        augment: crop, and where the data set allows it flip, images at random; start the windows of a text at a random
            token in each epoch; nothing otherwise.
        context: tokens per window; for language modelling alone.
        rank: number of this process.
        world: number of processes.
        drop_last: leave out an epoch's last batch if it is smaller than the others.
        ids: True makes the batches (inputs, targets, ids), where the id of an example (window) is its number in
            `examples`; a tensor has the ids themselves, one for each. `varlearn.sensitivity` reads them.

    >>> examples = Examples(torch.arange(5.0).view(5, 1), torch.arange(5.0), (), "table")
    >>> batches = Batches(examples, 2, seed=0, shuffle=True)
    >>> len(batches), [y.tolist() for _, y in batches]
    (3, [[0.0, 1.0], [2.0, 3.0], [4.0]])
    >>> whole, resumed = list(batches.epoch(7)), list(batches.epoch(7, start=1))
    >>> all(torch.equal(a[1], b[1]) for a, b in zip(whole[1:], resumed, strict=True))
    True
    """

    def __init__(
        self,
        examples: Examples,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = False,
        augment: bool = False,
        context: int | None = None,
        rank: int = 0,
        world: int = 1,
        drop_last: bool = False,
        ids: bool | Tensor = False,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size} must be >= 1")
        if not 0 <= rank < world:
            raise ValueError(f"rank={rank} must be between 0 and world - 1 = {world - 1}")
        self.examples, self.batch_size, self.seed = examples, batch_size, seed
        self.shuffle, self.augment, self.drop_last = shuffle, augment, drop_last
        self.rank, self.world = rank, world
        if (examples.kind == "tokens") != (context is not None):
            rule = "needs context, the tokens per window" if context is None else "takes no context"
            raise ValueError(f"context={context}: {examples.kind} data {rule}")
        self.context = context or 0
        share = self._units(augment) // world
        self._steps = share // batch_size if drop_last else math.ceil(share / batch_size)
        self._share = self._steps * batch_size if drop_last else share  # of one process in one epoch
        if self._steps == 0:
            what = f"windows of {context} tokens" if context else "examples"
            raise ValueError(
                f"batch_size={batch_size} gives no batch: {self._units(augment)} {what} over {world} process(es)"
                f"{', drop_last=True' if drop_last else ''}; use a smaller batch_size or context, or more data"
            )
        self._ids = None if ids is False else torch.arange(self._units(False)) if ids is True else ids
        if self._ids is not None and self._ids.shape != (self._units(False),):
            raise ValueError(
                f"ids of shape {tuple(self._ids.shape)} must be one for each of the {self._units(False)} examples or "
                "windows; ids=True numbers them"
            )
        shape = (1, -1, 1, 1) if examples.kind == "image" else (1, -1)
        self._mean, self._std = (torch.tensor(values).view(shape) for values in (examples.mean, examples.std))

    def __len__(self) -> int:
        """Number of batches that `epoch` gives."""
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        """Every example of this process's share once, in the stored order, unaugmented."""
        units = torch.arange(self.rank, self._units(False), self.world)
        yield from self._serve(units.split(self.batch_size), choices=None, phase=0)

    def chosen(self, rows: Tensor) -> Iterator[Any]:
        """The examples (windows) of the given numbers in their order, in batches, unaugmented.

        >>> batches = Batches(Examples(torch.zeros(5, 1), torch.arange(5.0), (), "table"), 2, ids=True)
        >>> [(targets.tolist(), ids.tolist()) for _, targets, ids in batches.chosen(torch.tensor([4, 0, 1]))]
        [([4.0, 0.0], [4, 0]), ([1.0], [1])]
        """
        yield from self._serve(rows.split(self.batch_size), choices=None, phase=0)

    @property
    def count(self) -> int:
        """Number of examples, or of windows of a text, of all processes together."""
        return self._units(False)

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of one epoch, from batch `start` on.

        Args:
            number: of the epoch; decides order and augmentation.
            start: batches to leave out because they have been seen; at most len(self).
        """
        if number < 0 or not 0 <= start <= len(self):
            raise ValueError(f"epoch({number}, start={start}): number must be >= 0 and start in 0 .. {len(self)}")
        n = self._units(self.augment)
        order = torch.randperm(n, generator=generator(self.seed, "order", number)) if self.shuffle else torch.arange(n)
        order = order[self.rank :: self.world][: self._share]
        choices, phase = None, 0
        if self.augment and self.context:
            phase = int(torch.randint(self.context, (), generator=generator(self.seed, "phase", number)))
        elif self.augment and isinstance(self.examples.inputs, StoredImages):
            choices = self.examples.inputs.draw(self.examples.mirror, seed=self.seed, epoch=number)
        elif self.augment and self.examples.kind == "image":
            choices = augmentation.draw(n, self._padding(), self.examples.mirror, seed=self.seed, epoch=number)
        yield from self._serve(order.split(self.batch_size)[start:], choices, phase)

    def _units(self, augment: bool) -> int:
        """Number of examples, or of windows; a random start costs up to a window's length."""
        if not self.context:
            return len(self.examples)
        return (len(self.examples) - (self.context if augment else 1)) // self.context

    def _padding(self) -> int:
        return augmentation.padding(*self.examples.inputs.shape[-2:])

    def _serve(self, parts: tuple[Tensor, ...], choices: Tensor | None, phase: int) -> Iterator[Batch | BatchWithIds]:
        batches = self._pairs(parts, choices, phase)
        if self._ids is None:
            yield from batches
            return
        for index, (inputs, targets) in zip(parts, batches, strict=True):
            yield inputs, targets, self._ids[index]

    def _pairs(self, parts: tuple[Tensor, ...], choices: Tensor | None, phase: int) -> Iterator[Batch]:
        inputs, targets = self.examples.inputs, self.examples.targets
        if isinstance(inputs, StoredImages):
            images = inputs.decode_ahead(parts, choices)
            yield from ((self._normalised(batch), targets[index]) for index, batch in zip(parts, images, strict=True))
            return
        for index in parts:
            if self.context:
                window = index[:, None] * self.context + phase + torch.arange(self.context + 1)  # (B, context + 1)
                tokens = inputs[window].long()
                yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
                continue
            batch = inputs[index]
            if choices is not None:
                batch = augmentation.flip_crop(batch, choices[index], self._padding())
            yield self._normalised(batch), targets[index]

    def _normalised(self, batch: Tensor) -> Tensor:
        if batch.dtype == torch.uint8:
            batch = batch.to(torch.float32).div_(255)
        if not self.examples.mean:
            return batch
        return batch.sub_(self._mean).div_(self._std)  # indexing has made a copy
