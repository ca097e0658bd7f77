"""Variational AdamW on two ranks: one step on all of the batch, whatever the ranks share."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.optim.ranks import vadamw_cases
from tests.optim.ranks.fsdp_cases import batch, make_model, rows
from tests.optim.ranks.world import World, run
from tests.reference.vadamw import Settings, VariationalAdamW

Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    return run([World(2, vadamw_cases.on_two)], Path(tmp_path_factory.mktemp("vadamw")))[0]


@pytest.mark.parametrize("name", ["shared", "shared, clipped", "sharded", "sharded, two blocks"])
def test_one_sample_on_all_ranks_is_the_run_of_one_process(ranks: Ranks, name: str) -> None:
    for rank in ranks:
        found, plain = rank[name]
        for key, expected in plain.items():
            torch.testing.assert_close(found[key], expected, rtol=1e-9, atol=1e-12, msg=key)


def test_independent_samples_give_the_mean_gradient_over_ranks(ranks: Ranks) -> None:
    """The reference takes the gradient of each rank at its own sample, on its own rows."""
    first, second = (rank["independent"] for rank in ranks)
    net = make_model()
    shapes = [tuple(param.shape) for param in net.parameters()]
    sizes = [param.numel() for param in net.parameters()]
    reference = VariationalAdamW(
        [part.view(shape).numpy() for part, shape in zip(first["start"].split(sizes), shapes, strict=True)],
        Settings(n=24.0, batch=12.0, lr=0.05, beta2=0.9, ess=lambda passes: 100.0),
    )
    for step in range(vadamw_cases.STEPS):
        grads = []
        for number, rank in enumerate((first, second)):
            with torch.no_grad():
                for param, part in zip(net.parameters(), rank["seen"][step].split(sizes), strict=True):
                    param.copy_(part.view_as(param))
            loss = net(rows(batch(step, 0, torch.float64), number, 2)).square().mean()
            grads.append([grad.numpy() for grad in torch.autograd.grad(loss, list(net.parameters()))])
        reference.step([(one + two) / 2.0 for one, two in zip(*grads, strict=True)])
    for k, (name, _) in enumerate(net.named_parameters()):
        assert torch.equal(first[name], second[name])
        np.testing.assert_allclose(first[name].numpy(), reference.m[k], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(first[f"{name}/v"].numpy(), reference.v[k], rtol=1e-9, atol=1e-15)
        assert float(first[f"{name}/s"][0]) == pytest.approx(reference.s[k])
    assert not torch.equal(first["seen"][-1], second["seen"][-1])
    assert first["bytes"] <= 8 * len(sizes)  # marks alone: there are no products to average


def test_a_checkpoint_of_shards_goes_on_bitwise(ranks: Ranks) -> None:
    for rank in ranks:
        found, whole = rank["resumed"]
        for key, expected in whole.items():
            assert torch.equal(found[key], expected), key
