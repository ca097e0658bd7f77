"""A user's loader as the batches of a training: checked, counted, and in an order that a seed decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from varlearn.data.seeds import generator
from varlearn.fitting.array_inputs import as_tensors, is_array
from varlearn.methods import Batch
from varlearn.prediction.loader_batches import Unpack, split_batch

CheckTargets = Callable[[Tensor], Tensor]
"""From the targets of a batch to the tensor that the loss takes; raises where they break a rule."""


def pass_seed(seed: int, number: int) -> int:
    """The seed of PyTorch's generator at the start of a pass over the data, which decides the order of a DataLoader.

    >>> pass_seed(0, 1) == pass_seed(0, 1), pass_seed(0, 1) == pass_seed(1, 0)
    (True, False)
    """
    return generator(seed, "pass", number).initial_seed()


class OwnBatches:
    """The pairs (inputs, targets) of a loader.

    Before each training pass, PyTorch's global generator for the CPU and the loader's own generator are seeded with
    `pass_seed(seed, number)`. A resumed run therefore sees the same order, and skips what it has seen.

    Args:
        loader: any iterable of batches that can be read several times.
        name: of the argument, for messages.
        seed: of the order.
        unpack: from a batch to (inputs, targets); None for pairs and mappings with "labels".
        dtype: of the tensors that floating-point arrays become.
        targets: checks and converts the targets of each batch.

    >>> data = [(torch.zeros(2, 1), torch.tensor([0, 1])), (torch.ones(2, 1), torch.tensor([1, 0]))]
    >>> batches = OwnBatches(data, "train_loader")
    >>> len(batches), next(batches.epoch(0, start=1))[1]
    (2, tensor([1, 0]))
    """

    def __init__(
        self,
        loader: Iterable[Any],
        name: str,
        *,
        seed: int = 0,
        unpack: Unpack | None = None,
        dtype: torch.dtype = torch.float32,
        targets: CheckTargets = lambda targets: targets,
    ) -> None:
        check_rereadable(loader, name)
        self.loader, self.name, self.targets = loader, name, targets
        self._seed, self._unpack, self._dtype = seed, unpack or split_batch, dtype
        self._count: int | None = None

    def __len__(self) -> int:
        if self._count is None:
            try:
                self._count = len(self.loader)  # type: ignore[arg-type]
            except TypeError:  # also of a DataLoader whose data set has no length
                self._count = sum(1 for _ in self.loader)
            if not self._count:
                raise ValueError(
                    f"{self.name} gave batches in the first pass and none in the second, and training reads it in "
                    "every epoch; pass a list or a DataLoader"
                )
        return self._count

    def __iter__(self) -> Iterator[Batch]:
        """One pass, as the loader is."""
        seen = 0
        for seen, batch in enumerate(self.loader, start=1):
            yield self._pair(batch, seen - 1)
        if not seen:
            raise ValueError(f"{self.name} gave no batch; it must give at least one in every pass")

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of training pass `number`, from batch `start` on."""
        now = torch.get_rng_state()
        seed = pass_seed(self._seed, number)
        for found in (torch.default_generator, *_own_generators(self.loader)):
            found.manual_seed(seed)
        given = 0
        for given, batch in enumerate(self.loader, start=1):
            if given == start:
                torch.set_rng_state(now)  # of a resumed run: what its network draws comes next
            if given > start:
                yield self._pair(batch, given - 1)
        if given != len(self):
            raise ValueError(
                f"{self.name} gave {given} batches in pass {number} and must give {len(self)} in each; pass a list or "
                "a DataLoader"
            )

    def over(self, loader: Iterable[Any]) -> OwnBatches:
        """The same batches from another loader, a part of this one."""
        options = {"unpack": self._unpack, "dtype": self._dtype, "targets": self.targets}
        return OwnBatches(loader, self.name, seed=self._seed, **options)

    def _pair(self, batch: Any, number: int) -> Batch:
        inputs, targets = self._unpack(batch)
        inputs = as_tensors(inputs, self._dtype)
        if targets is None:
            raise ValueError(
                f"batch {number} of {self.name} has no targets; give pairs (inputs, targets), mappings with 'labels', "
                "or unpack=lambda batch: (inputs, targets)"
            )
        try:
            targets = torch.as_tensor(as_tensors(targets, self._dtype))
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(
                f"the targets of batch {number} of {self.name} are no numbers; number the classes, e.g. by "
                "numpy.unique(labels, return_inverse=True)[1]"
            ) from None
        try:
            return inputs, self.targets(targets)
        except ValueError as error:
            raise ValueError(f"batch {number} of {self.name}: {error}") from None


def check_rereadable(loader: Any, name: str) -> None:
    """Refuse what is no iterable, and an iterator, which is empty after one pass.

    >>> check_rereadable(iter([1]), "train_loader")
    Traceback (most recent call last):
    ...
    ValueError: train_loader is a list_iterator, which can be read only once, and training reads it in every epoch; \
pass a list or a DataLoader
    """
    if isinstance(loader, tuple) and len(loader) == 2 and all(map(is_array, loader)):
        raise ValueError(
            f"{name} is one pair (inputs, targets), and batches of pairs are needed; pass "
            "DataLoader(TensorDataset(inputs, targets), batch_size=32), or [(inputs, targets)] for a single batch"
        )
    if is_array(loader) or isinstance(loader, (Mapping, str)) or not isinstance(loader, Iterable):
        raise TypeError(
            f"{name} is a {type(loader).__name__} and must be an iterable of batches (inputs, targets); pass a list of "
            "pairs or a DataLoader"
        )
    if isinstance(loader, Iterator):
        raise ValueError(
            f"{name} is a {type(loader).__name__}, which can be read only once, and training reads it in every epoch; "
            "pass a list or a DataLoader"
        )


def _own_generators(source: Any) -> list[torch.Generator]:
    """Generators of a loader, of its samplers and of what these are made of, each once."""
    parts = (getattr(source, name, None) for name in ("sampler", "batch_sampler", "items"))
    found = [one for part in parts if part is not None for one in _own_generators(part)]
    mine = getattr(source, "generator", None)
    if isinstance(mine, torch.Generator):
        found.insert(0, mine)
    return list({id(one): one for one in found}.values())
