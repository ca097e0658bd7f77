"""A small piece of each part of the campaign, in a process of its own because it forks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from soak import results
from soak.parts import PARTS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the campaign forks")


@pytest.mark.parametrize(
    ("part", "count"),
    [
        ("damage", 720),
        ("faults", 60),
        ("fuzz", 300),
        ("kills", 2),
        pytest.param("rank_kills", 2, marks=pytest.mark.slow),
    ],
)
def test_promises_are_kept(part: str, count: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "soak.run", "--only", part, "--count", str(count), "--out", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=results.REPO, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = results.read(tmp_path, part)
    assert found is not None
    assert (found["done"], found["broken"], found["finished"]) == (count, 0, True)
    assert part in PARTS
