"""Decisions of several processes are scored together."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from varlearn import metrics
from varlearn.train.decisions import Decisions


class Together:
    """What `Processes` offers, for threads that stand for processes."""

    def __init__(self, world: int) -> None:
        self.world, self.parts, self.gate = world, [], threading.Barrier(world)

    def process(self, rank: int) -> Any:
        return type("Mine", (), {"rank": rank, "world": self.world, "total": staticmethod(self.total)})

    def total(self, values: Tensor) -> Tensor:
        self.parts.append(values)
        self.gate.wait()
        found = torch.stack(self.parts).sum(0)
        if self.gate.wait() == 0:
            self.parts.clear()
        self.gate.wait()
        return found


@pytest.mark.parametrize("sizes", [(5, 4, 4), (3, 0, 1)])
def test_the_scores_are_those_of_all_examples(sizes: tuple[int, ...]) -> None:
    predicted, observed = torch.randn(sum(sizes)), torch.randn(sum(sizes))
    together = Together(len(sizes))
    parts = list(zip(predicted.split(list(sizes)), observed.split(list(sizes)), strict=True))

    def scores(rank: int) -> dict[str, float]:
        decided = Decisions(together.process(rank))
        decided.add(*parts[rank])
        return decided.scores("regression")

    with ThreadPoolExecutor(len(sizes)) as pool:
        found = list(pool.map(scores, range(len(sizes))))
    expected = {
        "pearson": metrics.pearson(predicted, observed),
        "spearman": metrics.spearman(predicted, observed),
    }
    assert found == [pytest.approx(expected, rel=1e-12)] * len(sizes)


def test_more_than_two_classes_have_no_f1() -> None:
    decided = Decisions(Together(1).process(0))
    decided.add(torch.tensor([0, 2]), torch.tensor([1, 2]))
    assert decided.scores("classification") == {}
    assert Decisions(Together(1).process(0)).scores("regression") == {}


def test_a_constant_has_no_correlation() -> None:
    decided = Decisions(Together(1).process(0))
    decided.add(torch.ones(3), torch.tensor([1.0, 2.0, 3.0]))
    assert decided.scores("regression") == {}
