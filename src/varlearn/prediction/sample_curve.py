"""The NLL of the average over the first s samples, for every s: how many samples are enough."""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.prediction.gather import Batches


class SampleCurve:
    """Collects the log-probability that each sample gives to the targets, batch by batch.

    It needs no further pass over the data, and one number per example.

    >>> curve = SampleCurve()
    >>> for p in (0.5, 0.25):  # two samples of one example, each with half of the weight
    ...     curve.add(0, torch.tensor([[p]]).log(), torch.tensor([0.5]).log())
    >>> curve.nll().neg().exp()  # 1/2, then (1/2 + 1/4) / 2
    tensor([0.5000, 0.3750], dtype=torch.float64)
    """

    def __init__(self) -> None:
        self._running = Batches()
        self._seen: dict[int, int] = {}
        self._sums: list[Tensor] = []
        self._log_weights: list[float] = []

    def add(self, batch: int, log_probs: Tensor, log_weights: Tensor) -> None:
        """Add the next samples of a batch.

        Args:
            batch: its number.
            log_probs: of the targets, shape (S, B).
            log_weights: of the samples, shape (S,).
        """
        for sample, log_weight in zip(log_probs.cpu().double(), log_weights.tolist(), strict=True):
            number = self._seen.get(batch, 0)
            if number == len(self._sums):
                self._sums.append(torch.zeros((), dtype=torch.float64))
                self._log_weights.append(log_weight)
            before = self._running.get(batch)
            now = sample + log_weight
            now = now if before is None else torch.logaddexp(before, now)
            self._running[batch], self._seen[batch] = now, number + 1
            self._sums[number] += now.sum()

    def nll(self) -> Tensor | None:
        """The NLL after each sample, shape (S,), float64; None if nothing was added."""
        examples = sum(len(value) for value in self._running.values())
        if not examples:
            return None
        total = torch.tensor(self._log_weights, dtype=torch.float64).logcumsumexp(0)
        return total - torch.stack(self._sums) / examples
