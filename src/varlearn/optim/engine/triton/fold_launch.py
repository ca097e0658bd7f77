"""Running means of gradients and hhat over several samples: the table of a fold, and its launches."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from varlearn.core.noise import signed
from varlearn.optim.engine.native import scalars
from varlearn.optim.engine.plan import Fold
from varlearn.optim.engine.readable_rows import is_readable
from varlearn.optim.engine.triton import row_layout as at
from varlearn.optim.engine.triton.device_tables import DeviceTable
from varlearn.optim.engine.triton.launching import Launcher
from varlearn.optim.engine.triton.rule_launches import DTYPES, HOW, floats_of


class FoldLaunch:
    """Launches the kernel `fold` on those folds that it can read.

    Args:
        launcher: of the plan.
        parts: the parameters; of sharded ones this rank's parts.
        words: the plan's rows, one for each parameter.
    """

    def __init__(self, launcher: Launcher, parts: Sequence[Tensor], words: array[int]) -> None:
        self._launcher, self._parts, self._words = launcher, parts, words
        device = parts[0].device
        self._rows, self._keys = DeviceTable(torch.int64, device), DeviceTable(torch.int64, device)
        self._scalars = DeviceTable(torch.float32, device)

    def run(self, kernel: Any, folds: Sequence[tuple[int, Fold]]) -> list[tuple[int, Fold]]:
        """Compute the folds and return those that the kernel cannot read, for another engine."""
        words, numbers, keys = self._words[:], list[float](), list[int]()
        known: dict[tuple[object, ...], int] = {}
        kinds: dict[tuple[torch.dtype, int], list[int]] = {}
        others: list[tuple[int, Fold]] = []
        for k, each in folds:
            if not self._can_read(k, each):
                others.append((k, each))
                continue
            kind = (each.noise, each.approximation, each.count)
            if kind not in known:
                known[kind] = len(known)
                numbers += floats_of(scalars.of_ivon_fold(each))
                keys.append(signed(each.noise.key))
            self._fill(words, k, each, known[kind])
            kinds.setdefault((each.grad.dtype, HOW[each.approximation]), []).append(k)
        self._rows.write(words)
        self._keys.write(keys)
        self._scalars.write(numbers)
        for (dtype, how), positions in kinds.items():
            tables = self._keys.tensor, self._scalars.tensor
            self._launcher.run(kernel, self._rows, positions, *tables, GRAD_DTYPE=DTYPES[dtype], HOW=how)
        return others

    def _can_read(self, k: int, fold: Fold) -> bool:
        part = self._parts[k]
        alike = [tensor for tensor in (fold.grad, fold.grad_mean, fold.captured) if tensor is not None]
        if not all(tensor.dtype == fold.grad.dtype and is_readable(tensor, part, DTYPES) for tensor in alike):
            return False
        return is_readable(fold.estimate_mean, part)

    def _fill(self, words: array[int], k: int, fold: Fold, number: int) -> None:
        row = words[at.WORDS * k : at.WORDS * (k + 1)]
        row[at.GRAD], row[at.ESTIMATE_MEAN] = fold.grad.data_ptr(), fold.estimate_mean.data_ptr()
        row[at.GRAD_MEAN] = 0 if fold.grad_mean is None else fold.grad_mean.data_ptr()
        row[at.CAPTURED] = 0 if fold.captured is None else fold.captured.data_ptr()
        row[at.SETTINGS] = row[at.GROUP] = number
        row[at.ALIGNED] = at.are_aligned(row)
        words[at.WORDS * k : at.WORDS * (k + 1)] = row
