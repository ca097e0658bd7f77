import math

import pytest
import torch
from torch import nn
from torch.func import functional_call

from varlearn.posterior import DiagGaussian, Mixture, Point
from varlearn.prediction import Linearized, predict_regression

X = torch.randn(11, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.randn(11, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
LOADER = [(X[:6], Y[:6]), (X[6:], Y[6:])]


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()


class Heteroscedastic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.spread = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.mean(x), nn.functional.softplus(self.spread(x))


@pytest.mark.parametrize("vectorize", [False, True])
def test_moments_are_those_of_the_samples(net: nn.Module, around, vectorize: bool) -> None:
    q = around(net, 0.5)
    result = predict_regression(net, q, LOADER, 17, 4, noise_variance=0.25, keep_samples=True, vectorize=vectorize)
    outputs = torch.stack([functional_call(net, q.sample(4, index), X) for index in range(17)]).detach()
    torch.testing.assert_close(result.mean, outputs.mean(0))
    torch.testing.assert_close(result.epistemic, outputs.var(0, correction=0))
    torch.testing.assert_close(result.aleatoric, torch.full((11, 2), 0.25, dtype=torch.float64))
    torch.testing.assert_close(result.variance, result.epistemic + 0.25)
    assert result.sample_means is not None
    torch.testing.assert_close(result.sample_means, outputs)
    density = torch.distributions.Normal(outputs, 0.5).log_prob(Y).sum(-1)
    assert result.log_density is not None
    torch.testing.assert_close(result.log_density, density.logsumexp(0) - math.log(17))
    assert torch.equal(result.targets, Y)


def test_mixture_weights_count(net: nn.Module) -> None:
    parts = [{name: torch.randn_like(value) for name, value in net.named_parameters()} for _ in range(2)]
    q = Mixture([Point(part) for part in parts], weights=[0.9, 0.1])
    with pytest.warns(UserWarning, match="noise_variance=None is 0 here"):
        result = predict_regression(net, q, LOADER)
    a, b = (functional_call(net, part, X).detach() for part in parts)
    mean = 0.9 * a + 0.1 * b
    torch.testing.assert_close(result.mean, mean)
    torch.testing.assert_close(result.epistemic, 0.9 * (a - mean) ** 2 + 0.1 * (b - mean) ** 2)
    assert not result.aleatoric.any()
    assert result.log_density is None  # without noise the predictive has no density


@pytest.mark.parametrize("vectorize", [False, True])
def test_a_model_may_return_its_own_variance(around, vectorize: bool) -> None:
    net = Heteroscedastic().double()
    q = around(net, 0.3)
    result = predict_regression(net, q, LOADER, samples=5, vectorize=vectorize)
    pairs = [functional_call(net, q.sample(0, index), X) for index in range(5)]
    torch.testing.assert_close(result.aleatoric, torch.stack([v for _, v in pairs]).mean(0).detach())
    density = torch.stack([torch.distributions.Normal(m, v.sqrt()).log_prob(Y).sum(-1) for m, v in pairs])
    assert result.log_density is not None
    torch.testing.assert_close(result.log_density, (density.logsumexp(0) - math.log(5)).detach())
    with pytest.raises(ValueError, match="noise_variance=0.1 for a model that returns its own variance"):
        predict_regression(net, q, LOADER, samples=1, noise_variance=0.1)


def test_no_cancellation_far_from_zero(around) -> None:
    net = nn.Linear(1, 1)
    q = DiagGaussian(
        {"weight": torch.zeros(1, 1), "bias": torch.tensor([1e4])},
        {"weight": torch.full((1, 1), 1e12), "bias": torch.tensor([1.0])},
        ess=1.0,
    )
    result = predict_regression(net, q, [torch.zeros(1, 1)], samples=400, noise_variance=0.0)
    assert result.epistemic.item() == pytest.approx(1.0, rel=0.35)  # E[f^2] - E[f]^2 would be off by 8 in float32


def test_targets_of_another_layout_do_not_broadcast(around) -> None:
    net = nn.Linear(3, 1).double()
    flat = predict_regression(net, around(net), [(X, Y[:, 0])], samples=3, noise_variance=1.0)
    column = predict_regression(net, around(net), [(X, Y[:, :1])], samples=3, noise_variance=1.0)
    assert flat.log_density is not None
    assert flat.log_density.shape == (11,)
    assert torch.equal(flat.log_density, column.log_density)
    with pytest.raises(ValueError, match=r"targets of shape \(11, 2\) for outputs of shape \(11, 1\)"):
        predict_regression(net, around(net), [(X, Y)], samples=1, noise_variance=1.0)


def test_without_targets(net: nn.Module, around) -> None:
    result = predict_regression(net, around(net), [X], samples=3, noise_variance=1.0)
    assert result.targets is None
    assert result.log_density is None


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf])
def test_bad_noise(net: nn.Module, around, bad: float) -> None:
    with pytest.raises(ValueError, match=r"noise_variance=.* must be >= 0 and finite"):
        predict_regression(net, around(net), LOADER, noise_variance=bad)


def test_bad_variances_of_the_model(around) -> None:
    class Bad(Heteroscedastic):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.mean(x), -torch.ones_like(self.mean(x))

    net = Bad().double()
    with pytest.raises(ValueError, match=r"minimum -1; it must be >= 0"):
        predict_regression(net, around(net), LOADER, samples=1)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_outputs_that_are_no_numbers(bad: float) -> None:
    class Bad(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) + bad

    with pytest.raises(ValueError, match="batch 0 gives NaN under a posterior sample"):
        predict_regression(Bad(1, 1), Point({"weight": torch.ones(1, 1), "bias": torch.ones(1)}), [torch.ones(1, 1)])


class TestBayesianLinearRegression:
    """y = X w + noise with a Gaussian prior: the posterior and its mean-field approximation are known exactly."""

    noise, prior = 0.3, 2.0  # standard deviation of the noise, precision of the prior

    @pytest.fixture
    def problem(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        make = torch.Generator().manual_seed(0)
        inputs = torch.randn(40, 4, generator=make, dtype=torch.float64)
        inputs[:, 1] += 0.6 * inputs[:, 0]  # correlated, so mean-field differs from the exact posterior
        targets = inputs @ torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
        targets += self.noise * torch.randn(40, generator=make, dtype=torch.float64)
        return inputs, targets, torch.randn(7, 4, generator=make, dtype=torch.float64)

    def mean_field(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[DiagGaussian, torch.Tensor]:
        """The best diagonal Gaussian (its precision is the diagonal of the exact one), and the exact precision."""
        precision = inputs.T @ inputs / self.noise**2 + self.prior * torch.eye(4, dtype=torch.float64)
        mean = torch.linalg.solve(precision, inputs.T @ targets / self.noise**2)
        # in the optimizer's terms: mean loss over N examples, ess N, delta = prior / N
        hess = inputs.square().sum(0) / self.noise**2 / 40
        q = DiagGaussian({"weight": mean[None]}, {"weight": hess[None]}, ess=40.0, weight_decay=self.prior / 40)
        return q, precision

    def test_prediction_matches_the_closed_form(self, problem) -> None:
        inputs, targets, test = problem
        q, precision = self.mean_field(inputs, targets)
        torch.testing.assert_close(q.precision["weight"][0], precision.diagonal())
        net = nn.Linear(4, 1, bias=False).double()
        samples = 3000
        result = predict_regression(net, q, [test], samples, noise_variance=self.noise**2, vectorize=True)
        exact_mean = test @ q.mean["weight"][0]
        exact_variance = test.square() @ q.precision["weight"][0].reciprocal()
        error = exact_variance.sqrt() / math.sqrt(samples)
        assert ((result.mean[:, 0] - exact_mean).abs() < 4.5 * error).all()
        assert (result.epistemic[:, 0] / exact_variance - 1).abs().max() < 4.5 * math.sqrt(2 / samples)
        torch.testing.assert_close(result.variance, result.epistemic + self.noise**2)

    def test_linearized_prediction_is_exact_for_a_linear_model(self, problem) -> None:
        inputs, targets, test = problem
        q, _ = self.mean_field(inputs, targets)
        net = nn.Linear(4, 1, bias=False).double()
        exact = predict_regression(net, q, [test], 20, noise_variance=0.0, keep_samples=True)
        linear = predict_regression(net, Linearized(q), [test], 20, noise_variance=0.0, keep_samples=True)
        torch.testing.assert_close(linear.sample_means, exact.sample_means, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(linear.epistemic, exact.epistemic, rtol=1e-9, atol=1e-12)


def test_an_output_without_a_last_dimension(around) -> None:
    flat = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)).double()  # (B,) instead of (B, 1)
    column = nn.Sequential(nn.Linear(3, 1), nn.Identity()).double()
    column.load_state_dict(flat.state_dict())
    targets = Y[:, 0]
    a = predict_regression(flat, around(flat, 0.5), [(X, targets)], 5, noise_variance=0.25)
    b = predict_regression(column, around(column, 0.5), [(X, targets[:, None])], 5, noise_variance=0.25)
    assert a.mean.shape == (11,)
    torch.testing.assert_close(a.log_density, b.log_density)
