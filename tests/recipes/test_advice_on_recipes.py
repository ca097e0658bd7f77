"""The shipped recipes at the small scale get no warning."""

from pathlib import Path

import pytest

from varlearn.recipes import recipe
from varlearn.recipes.jobs import Job, finish
from varlearn.train import advise_run

SLOW = ("cola-gru-ivon", "ag_news-gru-ivon", "imdb-gru-ivon", "gpt2-125m-ivon", "cifar10-resnet20-ivon")


@pytest.mark.parametrize(
    "name",
    ["digits-ivon", "digits-vadamw", "digits-adamw", "digits-sgd"]
    + [pytest.param(name, marks=pytest.mark.slow) for name in SLOW],
)
def test_a_shipped_recipe_gets_no_warning(name: str, tmp_path: Path) -> None:
    finish(Job(recipe(name), {}, tmp_path / name), progress=False)
    assert [str(finding) for finding in advise_run(tmp_path / name) if finding.severity != "note"] == []
