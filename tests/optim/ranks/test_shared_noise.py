"""Ranks that are to have one sample have it, whatever their seeds were, and drifting apart is an error."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.optim.ranks import shared_cases
from tests.optim.ranks.world import World, run

Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ranks]:
    worlds = [World(2, shared_cases.ddp), World(2, shared_cases.sharded), World(4, shared_cases.few)]
    found = run(worlds, Path(tmp_path_factory.mktemp("shared")))
    return dict(zip(("ddp", "sharded", "four"), found, strict=True))


def same_on_all(ranks: Ranks, names: tuple[str, ...] = ("mean", "hess", "momentum", "thetas")) -> None:
    for other in ranks[1:]:
        for name in names:
            assert all(map(torch.equal, ranks[0][name], other[name])), name
        assert other["groups"] == ranks[0]["groups"]


@pytest.mark.parametrize(
    ("world", "name"),
    [
        ("ddp", "no seed"),
        ("four", "no seed"),
        ("ddp", "seeds differ"),
        ("ddp", "largest seed"),
        ("sharded", "hybrid"),
        ("sharded", "shards"),
        ("sharded", "shards, seeds differ"),
    ],
)
def test_ranks_share_the_sample_and_train_as_one_process(worlds: dict[str, Ranks], world: str, name: str) -> None:
    """Against one process with the agreed seed on all batches; so mean h is its mean h, too."""
    ranks = [rank[name] for rank in worlds[world]]
    assert len({rank["own seed"] for rank in ranks}) == len(ranks)  # the case is what it says
    same_on_all(ranks)
    assert ranks[0]["groups"][0]["seed"] == ranks[0]["own seed"]
    for what in ("mean", "hess", "momentum", "thetas"):
        for ours, theirs in zip(ranks[0][what], ranks[0]["reference"][what], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11, msg=what)


def test_independent_noise_stays_independent_when_the_seeds_differ(worlds: dict[str, Ranks]) -> None:
    first, second = (rank["independent"] for rank in worlds["ddp"])
    same_on_all([first, second], ("mean", "hess", "momentum"))
    for one, other in zip(first["thetas"], second["thetas"], strict=True):
        assert float((one - other).abs().min()) > 0.0


def test_a_resumed_run_keeps_the_agreed_seed(worlds: dict[str, Ranks]) -> None:
    for rank in worlds["ddp"]:
        found = rank["resumed"]
        assert found["saved"][0]["param_groups"] == found["saved"][1]["param_groups"]
        same_on_all([found["uninterrupted"], found["after"]])


def test_a_group_that_joins_later_has_the_agreed_seed(worlds: dict[str, Ranks]) -> None:
    same_on_all([rank["group added"] for rank in worlds["ddp"]])


def test_a_rank_without_batches_does_not_hold_up_the_others(worlds: dict[str, Ranks]) -> None:
    ranks = [rank["one rank without batches"] for rank in worlds["ddp"]]
    same_on_all(ranks, ("hess", "momentum"))
    assert [len(rank["thetas"]) for rank in ranks] == [0, 2]
    assert ranks[0]["groups"][0]["draws"] == 2


def test_one_rank_may_evaluate_alone(worlds: dict[str, Ranks]) -> None:
    same_on_all([rank["evaluation on rank 0"] for rank in worlds["ddp"]])


def test_replicas_of_a_sharded_model_evaluate_one_sample(worlds: dict[str, Ranks]) -> None:
    first, second = (rank["evaluated"] for rank in worlds["sharded"])
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("not averaged", "gradients differ between ranks.*DistributedDataParallel.*sync=True does not average"),
        ("other seed", "not the same seed.*same checkpoint"),
        ("other draws", r"not at the same step.*\[\(1, 1\), \(2, 1\)\]"),
        ("other number of samples", r"not at the same step.*\[\(1, 2\), \(1, 1\)\]"),
        ("other draws at the start", r"not at the same step.*\[0, 1\].*same checkpoint"),
    ],
)
def test_ranks_that_drift_apart_are_stopped(worlds: dict[str, Ranks], name: str, message: str) -> None:
    for rank in worlds["ddp"]:
        with pytest.raises(RuntimeError, match=message):
            raise RuntimeError(rank["refusals"][name])


def test_replicas_with_other_seeds_are_stopped(worlds: dict[str, Ranks]) -> None:
    for rank in worlds["sharded"]:
        with pytest.raises(RuntimeError, match="not at the same draw, step and seed"):
            raise RuntimeError(rank["other seed"])
