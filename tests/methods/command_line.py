"""What the command line promises of every method: it trains, resumes bitwise after SIGKILL, and repeats its stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from varlearn.cli import main

REPOSITORY = Path(__file__).parents[2]
FLAGS = ["--train.steps", "120", "--train.eval_every", "60", "--train.checkpoint_every", "15"]
FLAGS += ["--evaluate.samples", "4", "--evaluate.subset", "200", "--quiet"]
FILES = ("config.json", "log.jsonl", "posterior.safetensors", "predictions.safetensors", "metrics.json")


def trained(name: str, out: Path, *flags: str) -> Path:
    """A run of a method on digits, without a break."""
    assert main(["train", f"digits-{name}", *FLAGS, *flags, "--out", str(out)]) == 0
    return out


def assert_repeats_after_a_kill(name: str, straight: Path, folder: Path, *flags: str) -> None:
    """A run that is killed and resumed in `folder` has the files of the run that was not."""
    command = [sys.executable, "-m", "tests.methods.kills", str(folder), name, "--", *FLAGS, *flags]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert 30 <= json.loads(done.stdout.splitlines()[-1])[name] < 120, done.stdout
    for file in FILES:
        assert (folder / name / file).read_bytes() == (straight / file).read_bytes(), file


def assert_later_stages_repeat(straight: Path) -> None:
    """`predict` and `score` write again what `train` wrote."""
    files = [straight / "predictions.safetensors", straight / "metrics.json"]
    before = [path.read_bytes() for path in files]
    for path in files:
        path.unlink()
    assert main(["predict", str(straight), "--quiet"]) == 0
    assert main(["score", str(straight)]) == 0
    assert [path.read_bytes() for path in files] == before


def scores(out: Path) -> dict[str, dict[str, float]]:
    """`metrics.json`."""
    return json.loads((out / "metrics.json").read_text())
