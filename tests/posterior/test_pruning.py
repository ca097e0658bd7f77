import math

import pytest
import torch

from varlearn.posterior import DiagGaussian, prune, signal_to_noise


@pytest.fixture
def q() -> DiagGaussian:
    # sigma 0.1 in "a" and 1 in "b": the ratio, not the size, decides
    return DiagGaussian(
        {"a": torch.tensor([0.5, -0.05, 0.2]), "b": torch.tensor([[0.9, -4.0]])},
        {"a": torch.full((3,), 100.0), "b": torch.ones(1, 2)},
        ess=1.0,
        fixed={"n": torch.tensor(1)},
    )


def test_signal_to_noise_is_the_mean_in_units_of_std(q: DiagGaussian) -> None:
    torch.testing.assert_close(signal_to_noise(q)["a"], torch.tensor([5.0, 0.5, 2.0]))
    torch.testing.assert_close(signal_to_noise(q)["b"], torch.tensor([[0.9, 4.0]]))


def test_the_lowest_ratios_of_all_tensors_go(q: DiagGaussian) -> None:
    cut = prune(q, 0.4)
    assert cut.mean["a"].tolist() == pytest.approx([0.5, 0.0, 0.2])
    assert cut.mean["b"].tolist() == [[0.0, -4.0]]
    assert cut.hess["a"].isinf().tolist() == [False, True, False]
    assert cut.std["b"].tolist() == [[0.0, 1.0]]
    assert cut.fixed is not None
    sample = cut.sample(seed=3)
    assert sample["a"][1] == sample["b"][0, 0] == 0.0
    assert sample["a"][0] != 0.5


def test_what_remains_is_sampled_as_before(q: DiagGaussian) -> None:
    assert torch.equal(prune(q, 0.4).sample(7)["a"][[0, 2]], q.sample(7)["a"][[0, 2]])


@pytest.mark.parametrize(("fraction", "removed"), [(0.0, 0), (0.1, 0), (0.2, 1), (0.5, 2), (0.8, 4), (1.0, 5)])
def test_the_number_of_removed_weights(q: DiagGaussian, fraction: float, removed: int) -> None:
    cut = prune(q, fraction)
    assert sum(int(hess.isinf().sum()) for hess in cut.hess.values()) == removed


def test_ties_are_cut_to_the_number_asked_for() -> None:
    q = DiagGaussian({"w": torch.ones(10)}, {"w": torch.ones(10)}, ess=1.0)
    assert prune(q, 0.3).mean["w"].tolist() == [0.0] * 3 + [1.0] * 7


def test_pruning_more_contains_pruning_less(q: DiagGaussian) -> None:
    twice = prune(prune(q, 0.4), 0.6)
    once = prune(q, 0.6)
    assert all(torch.equal(twice.mean[name], once.mean[name]) for name in q.mean)


def test_the_original_is_untouched(q: DiagGaussian) -> None:
    prune(q, 1.0)
    assert q.mean["a"][0] == 0.5
    assert q.hess["a"].isfinite().all()


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan])
def test_refusal(q: DiagGaussian, fraction: float) -> None:
    with pytest.raises(ValueError, match=r"fraction=.* must be in \[0, 1\]"):
        prune(q, fraction)


def test_the_temperature_does_not_change_what_is_pruned(q: DiagGaussian) -> None:
    cut = prune(q.at_temperature(0.0), 0.4)
    assert cut.temperature == 0.0
    assert cut.hess["a"].isinf().tolist() == prune(q, 0.4).hess["a"].isinf().tolist()
