"""Sharded parameters: FSDP2, hybrid sharding, tensor parallelism. Every run is compared with the unsharded one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.optim.ranks import fsdp_cases
from tests.optim.ranks.world import World, run

Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Ranks]:
    """By the number of ranks. The four save the checkpoint that the three and the two load."""
    found = run(
        [World(4, fsdp_cases.on_four), World(3, fsdp_cases.loading_on_three), World(2, fsdp_cases.on_two)],
        Path(tmp_path_factory.mktemp("fsdp")),
    )
    return {4: found[0], 3: found[1], 2: found[2]}


def check_equal(sharded: dict[str, Any], plain: dict[str, Any], tolerance: float) -> None:
    for name, expected in plain.items():
        if isinstance(expected, Tensor):
            torch.testing.assert_close(sharded[name], expected, rtol=tolerance, atol=tolerance, msg=name)
    for ours, theirs in zip(sharded["diagnostics"], plain["diagnostics"], strict=True):
        own = {"curvature_low", "curvature_median", "curvature_high"}  # of each rank's part
        own |= {"lr_start", "lr_lowest", "lr_peak", "lr_constant_for"}  # of steps that the object has taken itself
        own |= {"by_native", "by_triton", "by_foreach", "by_loop", "converted", "findings"}
        numbers = [
            [float(value) for name, value in vars(each).items() if value is not None and name not in own]
            for each in (ours, theirs)
        ]
        torch.testing.assert_close(*map(torch.tensor, numbers), rtol=10 * tolerance, atol=10 * tolerance)


CASES = [
    (2, "plain", 1e-12),
    (3, "plain", 1e-12),
    (3, "two blocks", 1e-12),
    (3, "micro-batches", 1e-12),
    (3, "modes", 1e-12),
    (3, "after a look", 1e-12),
    (3, "clipped by PyTorch", 1e-9),
    (3, "max_grad_norm", 1e-12),
    (3, "lean", 1e-12),
    (3, "prior", 1e-12),
    (3, "squared gradient", 1e-12),
    (3, "native", 1e-5),
    (3, "foreach", 1e-5),
    (3, "loop", 1e-5),
    (3, "bfloat16", 2e-2),
    (4, "hybrid", 1e-12),
    (4, "tensor parallel", 1e-12),
    (4, "sharded tensor parallel", 1e-12),
]


@pytest.mark.parametrize(("world", "name", "tolerance"), CASES)
def test_a_sharded_run_equals_the_unsharded_one(
    worlds: dict[int, Ranks], world: int, name: str, tolerance: float
) -> None:
    """Same noise for every element, so the same samples, gradients, state, KL and statistics."""
    for rank in worlds[world]:
        check_equal(rank[name]["sharded"], rank[name]["plain"], tolerance)


def test_mixed_precision_keeps_the_state_in_float32(worlds: dict[int, Ranks]) -> None:
    """bfloat16 has 8 bits: the runs differ by about that much, and not by another sample's noise (sigma is 0.1)."""
    for rank in worlds[4]:
        found = rank["policy"]
        assert found["dtypes"] == {"torch.float32"}
        for name, value in found["sharded"].items():
            if isinstance(value, Tensor) and "/" not in name and name != "kl":
                assert float((value - found["plain"][name]).abs().max()) < 0.02, name


def test_nan_in_one_shard_drops_the_step_on_every_rank(worlds: dict[int, Ranks]) -> None:
    for rank in worlds[3]:
        before, after = rank["nan"]["before"], rank["nan"]["after"]
        assert (before["skipped"], after["skipped"]) == (0, 1)
        for name, value in before.items():
            if isinstance(value, Tensor):
                assert torch.equal(value, after[name]), name


def test_a_block_whose_gradients_are_held_back_is_refused(worlds: dict[int, Ranks]) -> None:
    for rank in worlds[3]:
        assert "set_requires_gradient_sync(False)" in rank["held back"]


@pytest.mark.parametrize("world", [2, 3])
def test_a_checkpoint_of_four_ranks_is_bitwise_the_same_on_fewer(worlds: dict[int, Ranks], world: int) -> None:
    for rank in worlds[world]:
        found = rank["loaded"]
        assert found["counts"] == ({2}, 2)
        for name, value in found["saved"].items():
            if isinstance(value, Tensor) and name != "kl":
                assert torch.equal(value, found["loaded"][name]), name
        check_equal(found["continued"], found["finished"], 1e-12)
