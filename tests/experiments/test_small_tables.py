"""The parts of experiments/small_tables are apart, and its README has the table of the results."""

import json
from pathlib import Path

import torch

from experiments.small_tables import run


def test_the_parts_are_apart_and_standardized_by_the_training_rows() -> None:
    train, held_out, test = run.parts("iris", seed=0)
    assert [len(x) for x, _ in (train, held_out, test)] == [75, 37, 38]
    assert train[0].mean(0).abs().max() < 1e-6
    torch.testing.assert_close(train[0].std(0, correction=0), torch.ones(4))
    again = run.parts("iris", seed=0)
    assert all(torch.equal(x, y) for x, y in zip(train, again[0], strict=True))
    assert not torch.equal(train[1], run.parts("iris", seed=1)[0][1])


def test_the_readme_has_the_table_of_the_results() -> None:
    rows = [json.loads(line) for line in run.RESULTS.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len(run.SETS) * len(run.METHODS) * run.SEEDS
    text = Path(run.__file__).with_name("README.md").read_text(encoding="utf-8")
    assert "\n".join(run.table(rows)) in text


def test_breast_cancer_was_not_looked_at() -> None:
    assert not any("cancer" in name for name in run.SETS)
