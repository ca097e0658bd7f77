"""A rank is killed under torchrun; the others are restarted with it, resume, and end where they would have."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

REPO = Path(__file__).parents[2]


def torchrun(folder: Path, lost_at: int) -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command += ["-m", "tests.optim.elastic_training", str(folder), str(lost_at)]
    # A store of its own for each start, as docs/scaling.md says: else gloo may meet the address of the killed rank.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    subprocess.run(command, cwd=REPO, env=environment, check=True, timeout=240)
    return torch.load(folder / "result.pt", weights_only=False)


@pytest.mark.slow
def test_a_killed_rank_is_restarted_and_the_run_ends_bitwise_the_same(tmp_path: Path) -> None:
    straight = torchrun(tmp_path / "straight", lost_at=-1)
    resumed = torchrun(tmp_path / "lost", lost_at=3)
    assert (straight["start"], resumed["start"]) == (0, 3)
    assert straight["draws"] == resumed["draws"] == 5
    for name, value in straight.items():
        if isinstance(value, Tensor):
            assert torch.equal(value, resumed[name]), name
