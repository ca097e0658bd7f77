"""NLL after temperature scaling."""

import math

import pytest
import torch
from scipy.optimize import minimize_scalar

from varlearn.metrics import nll, scaled_nll, temperature_scaling
from varlearn.metrics.temperature_scaling import fitted_sharpness
from varlearn.prediction import Predictions, score


def drawn(n: int = 4_000, sharpness: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets drawn from softmax(z), and log-probabilities of softmax(sharpness z)."""
    logits = torch.randn(n, 5, dtype=torch.float64) * 2
    targets = torch.distributions.Categorical(logits=logits).sample()
    return torch.log_softmax(sharpness * logits, -1), targets


@pytest.mark.parametrize("sharpness", [0.2, 1.0, 5.0])
def test_the_fitted_sharpness_undoes_one(sharpness: float) -> None:
    log_probs, targets = drawn(20_000, sharpness)
    assert fitted_sharpness(log_probs, targets) == pytest.approx(1 / sharpness, rel=0.05)


def test_the_fit_is_the_minimum_that_scipy_finds() -> None:
    log_probs, targets = drawn(500, 3.0)

    def loss(log_b: float) -> float:
        return nll(torch.log_softmax(math.exp(log_b) * log_probs, -1), targets)

    best = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-8})
    assert math.log(fitted_sharpness(log_probs, targets)) == pytest.approx(best.x, abs=1e-5)


def test_overconfidence_does_not_count_and_information_does() -> None:
    log_probs, targets = drawn()
    sharp = torch.log_softmax(4 * log_probs, -1)
    assert nll(sharp, targets) > 1.3 * nll(log_probs, targets)
    assert scaled_nll(sharp, targets) == pytest.approx(scaled_nll(log_probs, targets), rel=1e-5)
    assert scaled_nll(log_probs, targets) == pytest.approx(nll(log_probs, targets), rel=0.01)
    mixed = torch.log_softmax(log_probs + torch.randn_like(log_probs), -1)
    assert scaled_nll(mixed, targets) > scaled_nll(log_probs, targets)


def test_sure_and_wrong_is_finite_and_sure_and_right_is_zero() -> None:
    sure = torch.tensor([[1.0, 0.0]] * 20).log()
    assert scaled_nll(sure, torch.zeros(20, dtype=torch.long)) == pytest.approx(0.0, abs=1e-12)
    targets = torch.tensor([0] * 15 + [1] * 5)
    assert scaled_nll(sure, targets) == pytest.approx(nll(torch.tensor([[0.75, 0.25]] * 20).log(), targets), rel=0.2)


def test_a_single_mistake_tells_no_temperature() -> None:
    log_probs = torch.tensor([[0.9, 0.1]] * 40).log()
    targets = torch.tensor([0] * 39 + [1])
    assert scaled_nll(log_probs, targets) == math.inf  # one half has no mistake: the surer, the better
    found = score(Predictions(log_probs, targets, torch.zeros(40), torch.ones(1)))
    assert found["scaled_nll"] is None
    assert found["nll"] < 0.2


def test_one_example_is_refused() -> None:
    with pytest.raises(ValueError, match="1 example cannot be halved"):
        scaled_nll(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([0]))


def test_two_examples_and_uniform_predictions_are_enough() -> None:
    uniform = torch.tensor([[0.5, 0.5]] * 2, dtype=torch.float64).log()
    assert scaled_nll(uniform, torch.tensor([0, 0])) == pytest.approx(math.log(2), rel=1e-12)


def test_the_sharpness_is_between_0_and_1000() -> None:
    rows = torch.tensor([[0.5005, 0.4995]] * 3, dtype=torch.float64).log()
    assert fitted_sharpness(rows, torch.tensor([0, 0, 0])) == pytest.approx(1_000.0, rel=1e-6)
    assert fitted_sharpness(rows, torch.tensor([1, 1, 1])) == pytest.approx(0.0, abs=1e-6)


def test_probabilities_below_1e_45_count_as_it() -> None:
    def value(least: float) -> float:
        right = torch.tensor([[0.0, least]] * 30, dtype=torch.float64)
        return scaled_nll(right, torch.tensor([0] * 20 + [1] * 10))

    assert value(-math.inf) == value(math.log(1e-46)) == value(math.log(1e-45))
    assert value(-math.inf) != value(math.log(1.5e-45))


def test_five_splits_and_seed_0_are_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    log_probs, targets = drawn(40)
    assert scaled_nll(log_probs, targets) == scaled_nll(log_probs, targets, seed=0)
    assert scaled_nll(log_probs, targets) != scaled_nll(log_probs, targets, seed=1)
    fitted: list[int] = []
    monkeypatch.setattr(temperature_scaling, "fitted_sharpness", lambda rows, _: float(fitted.append(len(rows)) or 1))
    scaled_nll(log_probs, targets)
    assert fitted == [20] * 10
