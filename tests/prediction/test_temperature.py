"""The fitted temperature, against closed forms and against the mean."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from varlearn.posterior import DiagGaussian, LowRankGaussian, Mixture, Point
from varlearn.prediction import (
    Linearized,
    RegressionPredictions,
    calibrate,
    predict,
    predict_regression,
    predict_tokens,
    temperature_curve,
)
from varlearn.prediction.temperature import golden_section


def line(std: float) -> tuple[nn.Module, DiagGaussian]:
    """y = w x with w ~ N(1, std^2)."""
    q = DiagGaussian({"weight": torch.ones(1, 1)}, {"weight": torch.full((1, 1), std**-2)}, ess=1.0)
    return nn.Linear(1, 1, bias=False), q


def residuals(size: float, count: int = 400) -> list[tuple[Tensor, Tensor]]:
    """Targets at x = 1 whose mean squared distance from the mean's prediction is exactly size^2."""
    errors = torch.randn(count, 1, generator=torch.Generator().manual_seed(0))
    errors = errors - errors.mean()
    return [(torch.ones(count, 1), 1.0 + size * errors / errors.square().mean().sqrt())]


def exactly(
    model: nn.Module, q: DiagGaussian, loader: list[Any], samples: int, seed: int, *, noise_variance: float
) -> RegressionPredictions:
    """The predictive of the line without sampling: N(m x, noise + sigma^2 x^2)."""
    ((inputs, targets),) = loader
    mean, epistemic = inputs * q.mean["weight"], (inputs * q.std["weight"]).square()
    variance = noise_variance + epistemic
    density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(targets).flatten()
    return RegressionPredictions(mean, epistemic, variance - epistemic, targets, density, torch.ones(1))


@pytest.mark.parametrize("best", [0.002, 0.02, 0.3, 1.0, 5.0, 15.0])
def test_a_linear_gaussian_model_gets_the_temperature_of_the_closed_form(best: float) -> None:
    # The predictive is N(x, noise + T std^2), so the best T has noise + T std^2 = the mean squared residual.
    noise, std = 1e-4, 0.5
    model, q = line(std)
    data = residuals(math.sqrt(noise + best * std**2))
    fitted = calibrate(model, q, data, by=exactly, noise_variance=noise)
    assert fitted.temperature == pytest.approx(best, rel=0.15)  # the search ends in an interval of a factor 1.25
    assert fitted.ess == q.ess


def test_with_samples_the_temperature_is_near_the_closed_form() -> None:
    model, q = line(0.5)
    data = residuals(math.sqrt(0.1 + 0.25))  # noise 0.1, so T = 1 is best
    fitted = calibrate(model, q, data, 256, by=predict_regression, noise_variance=0.1, vectorize=True)
    assert fitted.temperature == pytest.approx(1.0, rel=0.3)


def test_the_nll_is_within_a_thousandth_of_that_of_a_fine_grid() -> None:
    model, q = line(0.5)
    data = residuals(0.3)
    options: dict[str, Any] = {"samples": 32, "noise_variance": 0.01, "vectorize": True}

    def nll(temperature: float) -> float:
        found = predict_regression(model, q.at_temperature(temperature), data, **options)
        assert found.log_density is not None
        return -found.log_density.double().mean().item()

    fitted = calibrate(model, q, data, by=predict_regression, **options)
    assert nll(fitted.temperature) <= min(nll(math.exp(place / 20)) for place in range(-140, 60, 4)) + 1e-3


def test_residuals_below_the_noise_give_the_mean() -> None:
    model, q = line(0.5)
    assert calibrate(model, q, residuals(0.05), 16, by=predict_regression, noise_variance=0.01).temperature == 0.0


def classifier(seed: int, std: float) -> tuple[nn.Module, DiagGaussian, list[tuple[Tensor, Tensor]]]:
    make = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    mean = {name: torch.randn(value.shape, generator=make) for name, value in model.named_parameters()}
    q = DiagGaussian(mean, {name: torch.full_like(value, std**-2) for name, value in mean.items()}, ess=1.0)
    inputs = torch.randn(60, 4, generator=make)
    logits = predict(model, q.at_mean(), [inputs]).log_probs
    targets = torch.multinomial((0.7 * logits).softmax(-1), 1, generator=make).flatten()
    return model, q, [(inputs[:40], targets[:40]), (inputs[40:], targets[40:])]


@pytest.mark.parametrize("std", [1e-3, 0.1, 0.5, 5.0, 1e3])
@pytest.mark.parametrize("seed", range(4))
def test_the_average_is_never_worse_than_the_mean(seed: int, std: float) -> None:
    model, q, data = classifier(seed, std)
    fitted = calibrate(model, q, data, samples=4, seed=seed)

    def nll(posterior: DiagGaussian | Point) -> float:
        found = predict(model, posterior, data, samples=4, seed=seed)
        assert found.targets is not None
        return -found.log_probs.double().gather(1, found.targets[:, None]).mean().item()

    assert nll(fitted) <= nll(q.at_mean())
    assert nll(fitted) <= nll(q)
    if std == 1e3:  # no candidate is narrow enough
        assert fitted.temperature == 0.0
        assert torch.equal(predict(model, fitted, data).log_probs, predict(model, q.at_mean(), data).log_probs)


class OverflowsFarAway(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.weight.abs().max() > 8.0, math.nan, 1.0) * super().forward(x)


def test_a_temperature_whose_samples_overflow_is_no_candidate() -> None:
    _, q = line(1.0)
    model, data = OverflowsFarAway(1, 1, bias=False), residuals(1.0)
    options: dict[str, Any] = {"samples": 32, "noise_variance": 0.01}
    with pytest.raises(ValueError, match="gives NaN"):
        predict_regression(model, q.at_temperature(16.0), data, **options)
    assert 0.3 < calibrate(model, q, data, by=predict_regression, **options).temperature < 3.0


def test_language_models() -> None:
    class Unigram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = nn.Parameter(torch.zeros(5))

        def forward(self, tokens: Tensor) -> Tensor:
            return self.logits.expand(*tokens.shape, 5)

    sure = {"logits": torch.tensor([3.0, 0.0, 0.0, 0.0, 0.0])}
    q = DiagGaussian(sure, {"logits": torch.ones(5)}, ess=1.0)
    tokens = torch.arange(20).view(2, 10) % 5  # uniform, so the mean is too sure
    data = [(tokens, tokens)]
    fitted = calibrate(Unigram(), q, data, samples=32, by=predict_tokens)
    assert fitted.temperature > 1
    perplexities = [predict_tokens(Unigram(), one, data, samples=32).perplexity for one in (fitted, q, q.at_mean())]
    assert perplexities == sorted(perplexities)


def test_a_mixture_gets_one_temperature_and_points_stay() -> None:
    model, q, data = classifier(0, 5.0)
    mixture = Mixture((q, q.at_mean(), q.at_temperature(0.5)), weights=(2.0, 1.0, 1.0))
    fitted = calibrate(model, mixture, data, samples=4)
    first, point, third = fitted.components
    assert isinstance(first, DiagGaussian)
    assert isinstance(third, DiagGaussian)
    assert first.temperature == third.temperature < 0.5
    assert point is mixture.components[1]
    assert fitted.weights == mixture.weights
    ensemble = Mixture((q.at_mean(), q.at_mean()))
    assert calibrate(model, ensemble, [], samples=4) is ensemble


def test_an_earlier_temperature_does_not_matter() -> None:
    model, q, data = classifier(1, 0.5)
    fitted = calibrate(model, q, data, samples=4)
    assert calibrate(model, q.at_temperature(0.0), data, samples=4).temperature == fitted.temperature


def test_low_rank_and_linearized() -> None:
    model, q, data = classifier(2, 0.5)
    low = LowRankGaussian(q.mean, q.hess, {name: torch.zeros(2, *value.shape) for name, value in q.mean.items()})
    assert calibrate(model, low, data, samples=4).temperature >= 0

    def linear(model: nn.Module, posterior: DiagGaussian, *arguments: Any) -> Any:
        return predict(model, Linearized(posterior), *arguments)

    fitted = calibrate(model, q, data, samples=4, by=linear)
    found = predict(model, Linearized(fitted), data, samples=4)
    if fitted.temperature == 0:
        torch.testing.assert_close(found.log_probs, predict(model, q.at_mean(), data).log_probs)


def test_refusals() -> None:
    model, q = line(1.0)
    with pytest.raises(ValueError, match="no targets"):
        calibrate(nn.Linear(1, 2, bias=False), Mixture([point_and_noise()]), [torch.ones(2, 1)])
    with pytest.raises(ValueError, match="noise_variance > 0"):
        calibrate(model, q, residuals(1.0), by=predict_regression, noise_variance=0.0)

    class Own:
        mean, std, fixed = q.mean, q.std, None

        def sample(self, seed: Any = 0, index: int = 0) -> dict[str, Tensor]:
            return q.sample(seed, index)

    with pytest.raises(TypeError, match="an? Own has no method at_temperature"):
        calibrate(model, Own(), residuals(1.0))  # type: ignore[arg-type]


def point_and_noise() -> DiagGaussian:
    return DiagGaussian({"weight": torch.ones(2, 1)}, {"weight": torch.ones(2, 1)}, ess=1.0)


def test_golden_section_finds_a_minimum_at_an_end() -> None:
    value, place = golden_section(lambda x: x, 0.0, 1.0)
    assert value == place < 0.25
    value, place = golden_section(lambda x: math.inf if x > 0.1 else -x, -1.0, 1.0)
    assert -0.2 < place <= 0.1


def test_the_curve_starts_at_the_mean_and_has_the_posterior_itself() -> None:
    net = nn.Linear(3, 2)
    q = DiagGaussian(
        dict(net.named_parameters()), {n: p.new_full(p.shape, 4.0) for n, p in net.named_parameters()}, 1.0
    )
    q = q.at_temperature(0.5)
    data = [(torch.randn(6, 3), torch.randint(2, (6,)))]
    curve = dict(temperature_curve(net, q, data, samples=4))
    assert list(curve) == [0.0, 0.03125, 0.125, 0.5, 2.0]
    for temperature, nll in curve.items():
        found = predict(net, q.at_temperature(temperature), data, samples=4)
        assert nll == pytest.approx(-found.log_probs.gather(1, data[0][1][:, None]).double().mean().item())
    assert temperature_curve(net, q.at_mean(), data) == temperature_curve(net, q.at_temperature(0.0), data) == []
