"""What a network decides for all examples at one setting of the weights, for scores that are no sums over examples."""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.methods import Task
from varlearn.prediction.scores import decision_scores
from varlearn.train.processes import Processes


class Decisions:
    """Collects predicted classes or values with their targets, and scores those of all processes together.

    Args:
        processes: this process among its peers; the order of the examples does not matter.

    >>> decided = Decisions(Processes(0, 1, torch.device("cpu")))
    >>> decided.add(torch.tensor([1, 0]), torch.tensor([1, 0]))
    >>> decided.scores("classification")
    {'f1': 1.0, 'matthews': 1.0}
    """

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._pairs: list[Tensor] = []

    def add(self, decisions: Tensor, targets: Tensor) -> None:
        """The decisions of a batch and their targets, each (B,)."""
        if targets.dim() == 1:
            self._pairs.append(torch.stack([decisions.double(), targets.double()]).cpu())

    def scores(self, task: Task) -> dict[str, float]:
        """F1 and Matthews of two classes, Pearson and Spearman of values; nothing where none were collected."""
        mine = torch.cat(self._pairs, 1) if self._pairs else torch.zeros(2, 0, dtype=torch.float64)
        pairs = self._joined(mine)
        if not pairs.shape[1] or task == "language":
            return {}
        if task == "regression":
            found = decision_scores(pairs[0], pairs[1], 0)
        elif pairs.max() > 1:
            return {}
        else:
            found = decision_scores(pairs[0].long(), pairs[1].long(), 2)
        return {name: value for name, value in found.items() if value is not None}

    def _joined(self, mine: Tensor) -> Tensor:
        """The pairs of all processes: each fills its own part of a common table, and the parts are added."""
        world, rank = self._processes.world, self._processes.rank
        if world == 1:
            return mine
        counts = torch.zeros(world, dtype=torch.float64)
        counts[rank] = mine.shape[1]
        sizes = [int(count) for count in self._processes.total(counts)]
        table = torch.zeros(2, sum(sizes), dtype=torch.float64)
        table[:, sum(sizes[:rank]) : sum(sizes[: rank + 1])] = mine
        return self._processes.total(table)
