"""Three processes: sums of three numbers depend on their order, and a resumed run must keep it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.test_training_loop import result
from tests.train.tiny import REPOSITORY, tiny_run
from varlearn.train import to_json


@pytest.mark.parametrize("method", ["adamw", "ivon"])
def test_a_resumed_run_of_three_processes_is_bitwise_the_uninterrupted_one(method: str, tmp_path: Path) -> None:
    config = to_json(tiny_run(method, steps=12, schedule="constant", eval_every=0, checkpoint_every=0))
    scenarios = [
        {"config": config, "out": str(tmp_path / out), "resume": True, "stop_at": stop, "full_at": None, "world": 3}
        for out, stop in (("straight", None), ("stopped", 4), ("stopped", None))
    ]
    (tmp_path / "scenarios.json").write_text(json.dumps(scenarios))
    command = [sys.executable, "-m", "tests.train.ranks", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "codes.json").read_text()) == [[0, 0, 0], [143, 143, 143], [0, 0, 0]]
    straight, stopped = result(tmp_path / "straight"), result(tmp_path / "stopped")
    assert straight["posterior.safetensors"] == stopped["posterior.safetensors"]
    assert straight["log.jsonl"] == stopped["log.jsonl"]
