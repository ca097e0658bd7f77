"""A rank is killed under torchrun; the others are restarted with it, resume, and end where they would have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

REPO = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_killed_rank_is_restarted_and_the_run_ends_bitwise_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command += ["-m", "tests.optim.ranks.elastic_training", str(tmp_path)]
    # A store of its own for each start, as docs/scaling.md says: else gloo may meet the address of the killed rank.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    subprocess.run(command, cwd=REPO, env=environment, check=True, timeout=600)
    found = torch.load(tmp_path / "result.pt", weights_only=False)
    assert (found["restarts"], found["start"], found["draws"]) == (1, 3, [5, 5])
    resumed, straight = found["resumed"], found["straight"]
    assert (resumed.keys(), resumed["kl"]) == (straight.keys(), straight["kl"])
    for name, value in straight.items():
        if isinstance(value, Tensor):
            assert torch.equal(value, resumed[name]), name
