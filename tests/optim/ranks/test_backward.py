"""Under DDP, hhat counts exactly the gradients that reach `p.grad`, whatever else happens in a training block."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.optim.ranks import backward_cases
from tests.optim.ranks.world import World, run
from tests.reference.algorithm1 import Algorithm1, Settings

NAMES = [
    *(name + suffix for name in backward_cases.CASES for suffix in backward_cases.DDP_OPTIONS),
    *(
        name + suffix
        for name in backward_cases.CASES
        for suffix in (", two blocks", ", micro-batches")
        if not name.startswith("first backward")
    ),
    "plain, hooks from the start",
    "norm logged before backward, hooks from the start",
    "gradient penalty, hooks from the start",
    "plain, static graph",
    *(f"cleared first, {blocks}" for blocks in (1, 2, 3)),
]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run([World(2, backward_cases.all_cases)], Path(tmp_path_factory.mktemp("backward")))[0]


@pytest.mark.parametrize("name", NAMES)
def test_products_are_of_the_gradients_that_reach_the_parameters(ranks: list[dict[str, Any]], name: str) -> None:
    """Against Algorithm 1 in NumPy, fed with every rank's samples and what its own backward left in `p.grad`."""
    found = [rank[name] for rank in ranks]
    reference = Algorithm1(found[0]["start"].numpy(), Settings(delta=0.01, beta2=0.9))
    samples = found[0]["samples"]
    for step in range(backward_cases.STEPS):
        now = slice(step * samples, (step + 1) * samples)
        thetas = [theta.numpy() for rank in found for theta in rank["thetas"][now]]
        grads = [grad.numpy() for rank in found for grad in rank["grads"][now]]
        reference.step(thetas, grads)
    assert not torch.equal(found[0]["grads"][0], found[1]["grads"][0])
    for each in found:
        for key, expected in (("momentum", reference.g), ("hess", reference.h), ("mean", reference.m)):
            np.testing.assert_allclose(each[key].numpy(), expected, rtol=1e-6, atol=1e-9, err_msg=key)


def test_gradients_of_earlier_blocks_are_not_cleared_unnoticed(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert "zero_grad() before the first backward of a block" in rank["cleared late"]
