"""DistributedDataParallel: ĝ and ĥ are the averages over ranks and samples, whatever the way of training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.optim.ranks import ddp_cases
from tests.optim.ranks.world import World, run
from tests.reference.algorithm1 import Algorithm1, Settings
from varlearn.optim.ranks import rank_agreement

Ranks = list[dict[str, Any]]
LONELY = 6.0  # seconds after which a rank without company gives up; on a busy machine the ranks must meet in this time


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[Ranks]:
    worlds = [
        World(2, ddp_cases.all_cases),
        World(3, ddp_cases.few_cases),
        World(2, ddp_cases.lonely_step, timeout=LONELY),
    ]
    return run(worlds, Path(tmp_path_factory.mktemp("ddp")))


def check(ranks: Ranks, tolerance: float, steps: int = ddp_cases.STEPS) -> None:
    """Against Algorithm 1 in NumPy, fed with every rank's own samples and gradients."""
    for name in ("mean", "hess", "momentum"):
        for other in ranks[1:]:
            assert torch.equal(ranks[0][name], other[name]), name
    reference = Algorithm1(ranks[0]["start"].double().numpy(), Settings(delta=0.01, beta2=0.9))
    used = torch.zeros(len(ranks[0]["start"]), dtype=torch.bool).numpy()
    for step in range(steps):
        now = slice(step * ranks[0]["samples"], (step + 1) * ranks[0]["samples"])
        thetas = [theta.double().numpy() for rank in ranks for theta in rank["thetas"][now]]
        grads = [grad.double().numpy() for rank in ranks for grad in rank["grads"][now]]
        used |= np.any(np.stack(grads) != 0.0, axis=0)
        reference.step(thetas, grads)
    for name, expected in (("momentum", reference.g), ("hess", reference.h), ("mean", reference.m)):
        np.testing.assert_allclose(
            ranks[0][name].double().numpy()[used], expected[used], rtol=tolerance, atol=tolerance, err_msg=name
        )


@pytest.mark.parametrize("name", [name for name in ddp_cases.CASES if name != "unused parameters"])
def test_two_ranks_average_gradients_and_products(worlds: list[Ranks], name: str) -> None:
    tolerance = 1e-6 if ddp_cases.CASES[name].dtype == torch.float64 else 1e-5
    check([rank[name] for rank in worlds[0]], tolerance)


@pytest.mark.parametrize("name", ["plain", "two blocks, no_sync"])
def test_three_ranks_average_gradients_and_products(worlds: list[Ranks], name: str) -> None:
    check([rank[name] for rank in worlds[1]], 1e-6)


@pytest.mark.parametrize("world", [0, 1])
def test_a_parameter_that_one_rank_does_not_use_has_a_zero_product_there(worlds: list[Ranks], world: int) -> None:
    """A parameter is stepped when some rank uses it; the weight that none uses keeps its state and value."""
    ranks = [rank["unused parameters"] for rank in worlds[world]]
    count = len(ranks[0]["start"])
    idle = slice(0, 3)  # the parameter of the module itself comes first
    assert torch.equal(ranks[0]["mean"][idle], torch.ones(3, dtype=torch.float64))
    assert torch.equal(ranks[0]["hess"][idle], torch.ones(3, dtype=torch.float64))
    for other in ranks[1:]:
        assert torch.equal(ranks[0]["mean"], other["mean"])
    halves = [slice(3, 3 + (count - 3) // 2), slice(3 + (count - 3) // 2, count)]
    for number, half in enumerate(halves):
        reference = Algorithm1(ranks[0]["start"][half].numpy(), Settings(delta=0.01, beta2=0.9))
        taken = 0
        for step in range(ddp_cases.STEPS):
            grads = [rank["grads"][step][half].numpy() for rank in ranks]
            if any(grad.any() for grad in grads):
                taken += 1
                reference.step([rank["thetas"][step][half].numpy() for rank in ranks], grads)
        assert ranks[0]["steps"][1 + 2 * number] == taken
        np.testing.assert_allclose(ranks[0]["hess"][half].numpy(), reference.h, rtol=1e-6)
        np.testing.assert_allclose(ranks[0]["mean"][half].numpy(), reference.m, rtol=1e-6)


def test_ranks_are_bitwise_equal_after_a_hundred_steps(worlds: list[Ranks]) -> None:
    first, second = (rank["long"] for rank in worlds[0])
    for name in ("mean", "hess", "momentum"):
        assert torch.equal(first[name], second[name])
    assert not torch.equal(first["thetas"][-1], second["thetas"][-1])


@pytest.mark.parametrize(("name", "divide_by_all"), [("uneven", True), ("uneven, fewer", False)])
def test_ranks_with_fewer_batches_join_early(worlds: list[Ranks], name: str, divide_by_all: bool) -> None:
    """A rank without inputs adds nothing to the sums; all end with the state of the one that went on."""
    ranks = [rank[name] for rank in worlds[0]]
    reference = Algorithm1(ranks[0]["start"].numpy(), Settings(delta=0.01, beta2=0.9))
    for step in range(3):
        active = [rank for rank in ranks if step < len(rank["thetas"])]
        thetas = [rank["thetas"][step].numpy() for rank in active]
        grads = [rank["grads"][step].numpy() for rank in active]
        if divide_by_all:
            thetas += [reference.m] * (2 - len(active))
            grads += [np.zeros_like(reference.m)] * (2 - len(active))
        reference.step(thetas, grads)
    for rank in ranks:
        np.testing.assert_allclose(rank["hess"].numpy(), reference.h, rtol=1e-6)
        np.testing.assert_allclose(rank["momentum"].numpy(), reference.g, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(rank["mean"].numpy(), reference.m, rtol=1e-6)
        assert (rank["draws"], set(rank["steps"])) == (3, {3})


def test_the_bytes_of_a_step_are_those_of_the_products(worlds: list[Ranks]) -> None:
    """23 parameters in four tensors: a number for each, and a mark for each tensor."""
    assert worlds[0][0]["plain"]["bytes"] == (23 + 4) * 8
    assert worlds[0][0]["float32"]["bytes"] == (23 + 4) * 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("averaged in a hook", "averaged before the products with the noise could be taken.*noise='shared'"),
        ("other numbers of samples", r"not at the same step.*\[\(0, 2\), \(0, 1\), \(0, 1\)\]"),
        ("joined in the wrong order", r"pass the model first: Join\(\[model, optimizer\]\)"),
        ("not from backward", "did not come from backward on any rank.*noise='shared'"),
    ],
)
def test_guards_refuse_on_every_rank(worlds: list[Ranks], name: str, message: str) -> None:
    for rank in worlds[1]:
        with pytest.raises(RuntimeError, match=message):
            raise RuntimeError(rank["refusals"][name])


def test_a_rank_that_is_left_alone_gets_an_error_after_the_time_out(worlds: list[Ranks]) -> None:
    waited = worlds[2][0]
    assert 0.5 * LONELY < waited["seconds"] < 10.0 * LONELY  # other groups here wait for minutes
    assert "rank 0 waited in step() for the other ranks" in waited["error"]
    assert "Join([model, optimizer])" in waited["error"]


def test_without_a_process_group_there_is_one_rank() -> None:
    assert (rank_agreement.world_size(), rank_agreement.rank()) == (1, 0)
