"""Figure 3c: uncertainty between two clusters."""

from dataclasses import replace
from pathlib import Path

import pytest

from varlearn.methods import METHODS
from varlearn.recipes.in_between_regression import in_between_run
from varlearn.recipes.in_between_study import in_between_lines, measure, sheet
from varlearn.recipes.study import Measured
from varlearn.train import fit


@pytest.mark.parametrize("name", ["mc-dropout", "sam", "swag"])
def test_methods_that_take_steps_of_sgd_do_not_diverge(name: str, tmp_path: Path) -> None:
    run = in_between_run(name)
    fit(replace(run, train=replace(run.train, steps=400)), tmp_path / "run", progress=False)
    assert max(abs(mean) for mean in measure(tmp_path / "run")["mean"]) < 5.0


def test_a_function_that_is_certain_at_the_data_has_no_ratio() -> None:
    line = in_between_lines("small")[list(METHODS).index("mc-dropout")]
    (row,) = sheet([Measured(line, 0, {"gap": 0.0, "at_data": 0.0, "ratio": None})]).rows
    assert row[-3:] == ["0.000", "0.000", "–"]
