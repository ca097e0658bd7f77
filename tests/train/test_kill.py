"""SIGKILL at any moment, then resume: to the bit the run that nobody killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.test_training_loop import result
from tests.train.tiny import REPOSITORY, tiny_run
from varlearn.train import Run, fit, to_json

pytestmark = pytest.mark.usefixtures("tiny_data")


def survive(run: Run, kills: int, folder: Path, seed: int) -> int:
    """Compare a run that was killed so many times with one that was not; return how many kills hit it."""
    (folder / "run.json").write_text(to_json(run))
    fit(run, folder / "straight", progress=False)
    command = [sys.executable, "-m", "tests.train.kills", folder / "run.json", folder / "killed", str(kills), str(seed)]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert result(folder / "killed") == result(folder / "straight")
    assert not list((folder / "killed").rglob("*.tmp"))
    return int(done.stdout)


def test_two_kills(tmp_path: Path) -> None:
    run = tiny_run("ivon", epochs=30, checkpoint_every=7, eval_every=30)
    assert survive(run, 2, tmp_path, seed=0) == 2


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ivon", "adamw"])
def test_twenty_kills(method: str, tmp_path: Path) -> None:
    run = tiny_run(method, epochs=300, checkpoint_every=6, eval_every=50, accumulate=2)
    assert survive(run, 20, tmp_path, seed=1) == 20
