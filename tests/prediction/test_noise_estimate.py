"""The noise of a regression against closed forms."""

import pytest
import torch

from varlearn.prediction import RegressionPredictions, estimate_noise
from varlearn.prediction.noise_estimate import with_noise

CHANCE = torch.Generator().manual_seed(0)


def predictions(errors: torch.Tensor, epistemic: float | torch.Tensor, aleatoric: float = 0.0) -> RegressionPredictions:
    ones = torch.ones_like(errors)
    return RegressionPredictions(0 * errors, epistemic * ones, aleatoric * ones, errors, None, torch.ones(1))


@pytest.mark.parametrize("noise", [1e-4, 1.0, 900.0])
def test_without_uncertain_weights_it_is_the_mean_squared_error(noise: float) -> None:
    errors = noise**0.5 * torch.randn(500, 1, generator=CHANCE)
    assert estimate_noise(predictions(errors, 0.0)).item() == pytest.approx(errors.square().mean().item(), rel=1e-3)


def test_what_the_weights_explain_is_no_noise() -> None:
    errors = 5.0 * torch.randn(4000, 1, generator=CHANCE)  # variance 25, of which 16 are known
    expected = errors.double().square().mean().item() - 16.0
    assert estimate_noise(predictions(errors, 16.0)).item() == pytest.approx(expected, rel=1e-2)


def test_a_predicted_noise_gets_a_factor() -> None:
    errors = 3.0 * torch.randn(500, 1, generator=CHANCE)
    factor = estimate_noise(predictions(errors, 0.0, aleatoric=2.0))
    assert factor.item() == pytest.approx(errors.square().mean().item() / 2.0, rel=1e-3)
    assert with_noise(predictions(errors, 0.0, aleatoric=2.0), factor).aleatoric[0, 0] == pytest.approx(2.0 * factor)


def test_each_output_has_its_own() -> None:
    errors = torch.randn(500, 2, generator=CHANCE) * torch.tensor([1.0, 100.0])
    torch.testing.assert_close(
        estimate_noise(predictions(errors, 0.0)), errors.double().square().mean(0), rtol=1e-3, atol=0.0
    )


def test_samples_that_disagree_cannot_replace_the_noise() -> None:
    """Two samples, both wrong by 1: as a Gaussian with their moments the noise would be 0, as a mixture it is 1."""
    means = torch.tensor([1.0, -1.0]).view(2, 1, 1).expand(2, 50, 1)
    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    zeros = torch.zeros(50, 1)
    found = RegressionPredictions(zeros, zeros + 1.0, zeros, zeros, None, half, sample_means=means)
    assert estimate_noise(found).item() == pytest.approx(1.0, rel=1e-3)
    density = with_noise(found, torch.tensor(1.0)).log_density
    assert density is not None
    assert density[0].item() == pytest.approx(torch.distributions.Normal(0.0, 1.0).log_prob(torch.tensor(1.0)).item())


def test_leave_one_out_errors_are_those_of_bayesian_linear_regression() -> None:
    """The estimate from the training data is the one from the n posteriors that lack one example each."""
    inputs = torch.randn(25, 6, generator=CHANCE, dtype=torch.float64)
    weights = torch.randn(6, generator=CHANCE, dtype=torch.float64)
    targets = inputs @ weights + 0.5 * torch.randn(25, generator=CHANCE, dtype=torch.float64)

    def posterior(x: torch.Tensor, y: torch.Tensor, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
        covariance = torch.linalg.inv(x.T @ x / noise + 0.01 * torch.eye(6))
        return covariance @ x.T @ y / noise, covariance

    noise = 0.25
    mean, covariance = posterior(inputs, targets, noise)
    spread = ((inputs @ covariance) * inputs).sum(1)
    leverage = spread / noise
    for number in range(25):
        rest = torch.arange(25) != number
        left, wide = posterior(inputs[rest], targets[rest], noise)
        error = targets[number] - inputs[number] @ left
        torch.testing.assert_close((targets - inputs @ mean)[number] / (1 - leverage[number]), error)
        torch.testing.assert_close(spread[number] / (1 - leverage[number]), inputs[number] @ wide @ inputs[number])
    found = RegressionPredictions(
        (inputs @ mean)[:, None], spread[:, None], torch.zeros(25, 1), targets, None, torch.ones(1)
    )
    inside, loo = estimate_noise(found).item(), estimate_noise(found, loo=True).item()
    assert inside < loo
    assert 0.1 < loo < 0.5  # 0.25


def test_targets_are_needed() -> None:
    zeros = torch.zeros(2, 1)
    with pytest.raises(ValueError, match="the predictions have no targets"):
        estimate_noise(RegressionPredictions(zeros, zeros, zeros, None, None, torch.ones(1)))
