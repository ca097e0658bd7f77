"""What a run has cost, from the files that it wrote."""

import json
from pathlib import Path

import pytest

from varlearn.train import fit
from varlearn.train.config import Data, Model, Optim, Run, Train
from varlearn.train.run_cost import run_cost
from varlearn.train.run_folder import RunFolder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    run = Run(
        model=Model("mlp", 10, hidden=()),
        data=Data("digits", subset=200, batch_size=20, augment=False),
        optim=Optim("sgd", lr=0.1),
        train=Train(epochs=3, log_every=5),
    )
    fit(run, tmp_path / "run", progress=False)
    return tmp_path / "run"


def test_the_sizes_are_those_of_the_run(out: Path) -> None:
    found = run_cost(out)
    assert found["weight_memory"] == 4 * 650
    assert found["state_memory"] == 4 * 650  # the momentum
    assert found["memory"] > 10_000_000
    assert 0.0 < found["seconds_per_epoch"] < 60.0


def test_the_time_is_the_median_between_lines_of_the_log_and_pauses_do_not_count(out: Path) -> None:
    records = [{"event": "start", "step": 0, "time": 100.0}]
    records += [{"step": 5 * k, "time": 100.0 + k, "seconds": float(k)} for k in (1, 2, 3)]
    records += [{"event": "start", "step": 15, "time": 5000.0}]
    records += [{"step": 15 + 5 * k, "time": 5000.0 + k, "seconds": float(k)} for k in (1, 2, 3)]
    RunFolder(out).timing.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = run_cost(out)
    assert found["seconds_per_epoch"] == pytest.approx(2.0)  # ten steps an epoch, five a second
    assert found["memory"] is None
    assert found["hours"] == pytest.approx(6.0 / 3600.0)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="train the run first"):
        run_cost(tmp_path)
