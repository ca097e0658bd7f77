"""A sharded model predicts what the unsharded one does, sample by sample; ranks put their shares together."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.optim.ranks.world import World, run
from tests.prediction import sharded_cases
from varlearn.prediction import Predictions, gather_ranks


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run([World(2, sharded_cases.two_ranks)], Path(tmp_path_factory.mktemp("sharded")))[0]


@pytest.mark.parametrize("name", ["all", "mixture", "share", "regression"])
def test_predictions_equal_those_of_the_unsharded_model(ranks: list[dict[str, Any]], name: str) -> None:
    for rank in ranks:
        ours, theirs = rank["pairs"][name]
        repeats = name in ("share", "regression")  # examples that the sampler repeats, and `size` drops
        assert (ours["nll_by_samples"] is None) == repeats
        for field, expected in theirs.items():
            if isinstance(expected, Tensor) and not (repeats and field == "nll_by_samples"):
                torch.testing.assert_close(ours[field], expected, rtol=1e-12, atol=1e-12, msg=field)
    kept = ranks[0]["pairs"]["share"][0]["sample_log_probs"]
    assert kept.shape == (5, sharded_cases.EXAMPLES, 3)
    assert all(not torch.equal(kept[0], kept[number]) for number in range(1, 5))  # every sample was seen


def test_a_sharded_posterior_is_the_whole_one_in_parts(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        for ours, theirs in rank["sample"].values():
            assert torch.equal(ours, theirs)
        for ours, theirs in [*rank["numbers"], rank["kl"]]:
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0.0)


def test_the_model_comes_back_bit_for_bit(ranks: list[dict[str, Any]]) -> None:
    assert all(rank["unchanged"] for rank in ranks)


def test_tokens_are_put_together_by_sequence(ranks: list[dict[str, Any]]) -> None:
    """Rank 0 has sequences 0 and 2, rank 1 has 1 and 3, of which 3 is a repetition and dropped."""
    for rank in ranks:
        assert rank["tokens"]["sequences"].tolist() == [0, 1, 2, 2]
        assert rank["tokens"]["targets"].tolist() == [0, 1, 2, 2]
        assert rank["tokens"]["log_probs"].tolist() == [0.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("save", "save posterior.gathered()"),
        ("vectorize", "a sharded model gathers its own"),
        ("linearized", "a sharded model gathers its own"),
        ("generator", "pass an int"),
        ("gap", "shares of [3, 1] examples leave gaps"),
    ],
)
def test_refusals(ranks: list[dict[str, Any]], name: str, message: str) -> None:
    assert all(message in rank["refused"][name] for rank in ranks)


def test_one_process_has_everything() -> None:
    predictions = Predictions(torch.arange(6.0).view(3, 2), torch.arange(3), torch.zeros(3), torch.ones(1))
    joined = gather_ranks(predictions)
    assert torch.equal(joined.log_probs, predictions.log_probs)
    with pytest.raises(TypeError, match="a Tensor has no examples"):
        gather_ranks(torch.zeros(3))


def test_ranks_average_their_curves_by_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.zeros(2, 1)
    mine = Predictions(rows, None, rows[:, 0], torch.ones(1), nll_by_samples=torch.tensor([1.0]))
    other = Predictions(rows[:1], None, rows[:1, 0], torch.ones(1), nll_by_samples=torch.tensor([4.0]))

    def gathered(ranks: list[Any], _: Any) -> None:
        ranks[:] = [mine, other]

    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.all_gather_object", gathered)
    assert gather_ranks(mine).nll_by_samples == torch.tensor([2.0])
