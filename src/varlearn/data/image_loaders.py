"""What decodes stored images: threads of this process, or separate processes.

Threads are enough for one or two processors, and begin at once. With more, they would wait for the interpreter. The
environment variable VARLEARN_LOADERS sets the number of processes; 0 asks for threads. The images are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from varlearn.data.errors import DataError

if TYPE_CHECKING:
    from varlearn.data.stored_images import StoredImages

FEW = 5_000  # images; threads decode so many before processes would have begun
_MOST = 16


def threads() -> int:
    """How many threads decode."""
    return min(_MOST, os.cpu_count() or 1)


def processes(count: int) -> int:
    """How many processes decode so many images; 0 for none but this one.

    >>> processes(10)
    0
    """
    given = os.environ.get("VARLEARN_LOADERS")
    if given is not None:
        if not given.isdigit():
            raise ValueError(f"VARLEARN_LOADERS={given!r} must be a number of processes; 0 decodes by threads")
        return int(given)
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")  # torchrun says how many share this machine
    mine = (os.cpu_count() or 1) // (int(ranks) if ranks.isdigit() and int(ranks) else 1)
    return 0 if mine <= 2 or count < FEW else min(_MOST, mine)


def from_processes(
    images: StoredImages, parts: Sequence[Tensor], choices: Tensor | None, count: int
) -> Iterator[Tensor]:
    """The images of each batch in turn, decoded by `count` processes, each two batches ahead."""
    from torch.utils.data import DataLoader

    loader = DataLoader(
        _Decoded(images),  # type: ignore[arg-type]
        batch_size=None,
        sampler=_Requests(parts, choices),
        num_workers=count,
        prefetch_factor=2,
        generator=torch.Generator(),  # the global one is not ours to use
    )
    for batch in loader:
        if isinstance(batch, Exception):
            raise batch
        yield batch


class _Requests:
    """For each batch the numbers of its images and their rows of `StoredImages.draw`."""

    def __init__(self, parts: Sequence[Tensor], choices: Tensor | None) -> None:
        self._parts, self._choices = parts, choices

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[tuple[list[int], Tensor | None]]:
        for part in self._parts:
            yield part.tolist(), None if self._choices is None else self._choices[part]


class _Decoded:
    """What a loader process does. An error of the data is handed over as it is, for its message."""

    def __init__(self, images: StoredImages) -> None:
        self._images = images

    def __getitem__(self, request: tuple[list[int], Tensor | None]) -> Any:
        numbers, choices = request
        rows: list[Any] = [None] * len(numbers) if choices is None else list(choices)
        try:
            return torch.stack([self._images.one(number, row) for number, row in zip(numbers, rows, strict=True)])
        except DataError as error:
            return error
