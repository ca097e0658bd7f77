"""The Laplace approximation, compared with dense algebra, closed forms and quadrature."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev

from varlearn import fit_laplace
from varlearn.posterior import DiagGaussian, KroneckerGaussian, LowRankGaussian
from varlearn.prediction import Linearized, Weights, predict
from varlearn.prediction.sample_loop import strata


def network() -> tuple[nn.Sequential, list[tuple[Tensor, Tensor]]]:
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3))
    inputs, targets = torch.randn(14, 2), torch.randint(3, (14,))
    return net, [(inputs[:5], targets[:5]), (inputs[5:], targets[5:])]


def dense(net: nn.Module, batches: list[tuple[Tensor, Tensor]], names: list[str]) -> Tensor:
    """sum_n J^T H J in float64, example by example."""
    wide = {name: value.detach().double() for name, value in net.named_parameters()}
    random = {name: wide[name] for name in names}
    size = sum(value.numel() for value in random.values())
    total = torch.zeros(size, size).double()
    for x in torch.cat([inputs for inputs, _ in batches]).double():

        def logits(params: dict[str, Tensor], x: Tensor = x) -> Tensor:
            return functional_call(net, {**wide, **params}, (x[None],))[0]

        jacobian = torch.cat([part.flatten(1) for part in jacrev(logits)(random).values()], 1)  # type: ignore[union-attr]
        probs = logits(random).softmax(0)
        total += jacobian.T @ (probs.diag() - probs.outer(probs)) @ jacobian
    return total


def covariance(q: LowRankGaussian) -> Tensor:
    rows = torch.cat([value.double().flatten(1) for value in q.deviations.values()], 1)
    return rows.T @ rows / (2 * (q.rank - 1))


LAST, ALL = ["2.weight", "2.bias"], ["0.weight", "0.bias", "2.weight", "2.bias"]


@pytest.mark.parametrize(("layers", "names"), [("last", LAST), ("all", ALL)])
def test_the_full_covariance_is_the_inverse_of_the_dense_precision(layers: str, names: list[str]) -> None:
    net, batches = network()
    q = fit_laplace(net, batches, layers=layers, structure="full").posterior(0.7)  # type: ignore[arg-type]
    assert isinstance(q, LowRankGaussian)
    expected = torch.linalg.inv(dense(net, batches, names) + 0.7 * torch.eye(sum(v.numel() for v in q.mean.values())))
    torch.testing.assert_close(covariance(q), expected, rtol=1e-4, atol=1e-6)
    assert set(q.mean) | set(q.fixed or {}) == set(net.state_dict())


@pytest.mark.parametrize(("layers", "names"), [("last", LAST), ("all", ALL)])
def test_the_diagonal_is_that_of_the_dense_matrix(layers: str, names: list[str]) -> None:
    net, batches = network()
    q = fit_laplace(net, batches, layers=layers, structure="diag").posterior(0.7)  # type: ignore[arg-type]
    assert isinstance(q, DiagGaussian)
    found = torch.cat([value.flatten() for value in q.std.values()]).double()
    torch.testing.assert_close(found, (dense(net, batches, names).diagonal() + 0.7).rsqrt(), rtol=1e-5, atol=0.0)


def test_the_kronecker_factors_are_the_mean_of_features_and_the_sum_of_curvatures() -> None:
    net, batches = network()
    q = fit_laplace(net, batches, structure="kron").posterior(0.7)
    assert isinstance(q, KroneckerGaussian)
    inputs = torch.cat([inputs for inputs, _ in batches])
    features, probs = net[:2](inputs).double(), net(inputs).double().softmax(1)
    inner = features.T @ features / 14
    outer = probs.sum(0).diag() - probs.T @ probs
    weight = torch.linalg.inv(torch.kron(outer, inner) + 0.7 * torch.eye(9).double())
    bias = torch.linalg.inv(outer + 0.7 * torch.eye(3).double())
    torch.testing.assert_close(q.std["2.weight"].flatten().double(), weight.diagonal().sqrt(), rtol=1e-4, atol=0.0)
    torch.testing.assert_close(q.std["2.bias"].double(), bias.diagonal().sqrt(), rtol=1e-4, atol=0.0)
    draws = torch.stack([q.perturbation(1, k)["2.weight"].flatten().double() for k in range(4_000)])
    assert (torch.cov(draws.T) - weight).abs().max() < 0.1


def test_a_linear_regression_has_its_exact_posterior_and_evidence() -> None:
    torch.manual_seed(0)
    inputs, noise, precision = torch.randn(30, 3), 0.25, 1.7
    targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5]]) + noise**0.5 * torch.randn(30, 1)
    exact = inputs.T @ inputs / noise + precision * torch.eye(3)
    net = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.linalg.solve(exact, inputs.T @ targets / noise).T)
    for layers in ("last", "all"):
        laplace = fit_laplace(net, [(inputs, targets)], layers=layers, noise_variance=noise)  # type: ignore[arg-type]
        q = laplace.posterior(precision)
        assert isinstance(q, LowRankGaussian)
        torch.testing.assert_close(covariance(q).float(), torch.linalg.inv(exact), rtol=1e-4, atol=1e-6)
        total = noise * torch.eye(30) + inputs @ inputs.T / precision
        evidence = torch.distributions.MultivariateNormal(torch.zeros(30), total).log_prob(targets[:, 0])
        assert laplace.log_marginal_likelihood(precision) == pytest.approx(evidence.item(), abs=2e-3)


def test_the_best_precision_has_no_slope() -> None:
    net, batches = network()
    laplace = fit_laplace(net, batches)
    best = laplace.best_precision()
    at = torch.tensor(best, dtype=torch.float64)
    values = laplace.curvature.eigenvalues()
    square = sum(float(value.detach().square().sum()) for value in (net[2].weight, net[2].bias))
    # the derivative of the evidence by the precision is zero: d |m|^2 = sum e / (e + d)
    assert float(at * square) == pytest.approx(float((values / (values + at)).sum()), rel=1e-5)
    assert laplace.log_marginal_likelihood(best) >= laplace.log_marginal_likelihood(best * 1.3)
    assert laplace.log_marginal_likelihood(best) >= laplace.log_marginal_likelihood(best / 1.3)


def test_the_predictive_of_a_logistic_regression_is_the_integral() -> None:
    """Two classes, one weight each: p(y | x) is an integral over the difference of the logits, by quadrature."""
    torch.manual_seed(0)
    net, inputs = nn.Linear(1, 2, bias=False), torch.randn(20, 1)
    targets = (inputs[:, 0] + 0.5 * torch.randn(20) > 0).long()
    laplace = fit_laplace(net, [(inputs, targets)])
    q = laplace.posterior(0.5)
    assert isinstance(q, LowRankGaussian)
    test = torch.tensor([[-2.0], [0.3], [4.0]])
    contrast = torch.tensor([-1.0, 1.0]).double()
    variance = float(contrast @ covariance(q) @ contrast) * test.double().square()[:, 0]
    mean = (net.weight.detach().double()[1] - net.weight.detach().double()[0]) * test.double()[:, 0]
    grid = torch.linspace(-8, 8, 4_001).double()
    density = torch.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi)
    expected = torch.trapezoid(torch.sigmoid(mean[:, None] + variance.sqrt()[:, None] * grid) * density, grid, dim=1)
    found = predict(net, q, [test], samples=4_000, progress=False).log_probs.exp()[:, 1].double()
    torch.testing.assert_close(found, expected, rtol=0.0, atol=0.02)


def test_it_predicts_as_it_was_fitted_wherever_the_precision_is_chosen() -> None:
    """Trap: a prior tuned for one kind of prediction and used with another."""
    net, batches = network()
    everything, last = fit_laplace(net, batches, layers="all"), fit_laplace(net, batches)
    assert isinstance(strata(everything.posterior(), 2)[0].sampler, Linearized)
    assert isinstance(strata(last.posterior(), 2)[0].sampler, Weights)
    seen = []

    def by(model: nn.Module, posterior: LowRankGaussian, *arguments: object) -> object:
        seen.append(posterior)
        return predict(model, posterior, *arguments, progress=False)  # type: ignore[arg-type]

    best = everything.validated_precision(net, batches, samples=8, by=by)
    assert len(seen) == 21
    assert {q.origin.predict for q in seen} == {"linearized"}
    scores = {
        precision: float(
            -predict(net, q, batches, samples=8, progress=False)
            .log_probs.gather(1, torch.cat([t for _, t in batches])[:, None])
            .mean()
        )
        for precision, q in zip([10 ** (k / 2.5) for k in range(-10, 11)], seen, strict=True)
    }
    assert best == pytest.approx(min(scores, key=scores.__getitem__))


def test_samples_of_the_last_layer_are_the_linearized_network() -> None:
    net, batches = network()
    q = fit_laplace(net, batches).posterior(0.7)
    one = predict(net, Weights(q), batches, samples=6, progress=False).log_probs
    other = predict(net, Linearized(q), batches, samples=6, progress=False).log_probs
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_another_precision_starts_from_the_same_curvature() -> None:
    """Trap: a prior set after the fit that adds to the one before."""
    net, batches = network()
    laplace = fit_laplace(net, batches)
    laplace.posterior(100.0)
    again, fresh = laplace.posterior(2.0), fit_laplace(net, batches).posterior(2.0)
    assert all(torch.equal(again.std[name], fresh.std[name]) for name in again.mean)


def test_pairs_of_mean_and_variance_have_the_fisher_matrix() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(1, 2, bias=False)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            out = self.linear(x)
            return out[:, :1], out[:, 1:].exp()

    net, inputs, targets = Pair(), torch.randn(6, 1), torch.randn(6)
    q = fit_laplace(net, [(inputs, targets)], layers="all", structure="diag").posterior(0.5)
    _, variance = net(inputs)
    squares = inputs.square()
    expected = torch.stack([(squares / variance).sum(), (squares * variance**2 / (2 * variance**2)).sum()]) + 0.5
    torch.testing.assert_close(q.std["linear.weight"][:, 0], expected.rsqrt(), rtol=1e-4, atol=0.0)
    assert q.origin.predict == "weights"


def test_the_model_is_as_before() -> None:
    net, batches = network()
    net.train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    fit_laplace(net, batches, layers="all", structure="diag")
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(param.grad is None for param in net.parameters())


@pytest.mark.parametrize("structure", ["full", "kron", "diag"])
def test_the_last_layer_takes_one_forward_pass_per_batch(structure: Any) -> None:
    net, batches = network()
    passes = []
    net.register_forward_hook(lambda *_: passes.append(1))
    fit_laplace(net, batches, structure=structure)
    assert len(passes) == len(batches) > 1


def test_outputs_that_are_not_finite_are_refused_with_the_number_of_the_batch() -> None:
    net, (first, (inputs, targets)) = network()
    cure = "check the data, then whether training diverged"
    with pytest.raises(ValueError, match=rf"batch 1 has NaN or infinity in the outputs, .* finite; {cure}"):
        fit_laplace(net, [first, (inputs.masked_fill(inputs > 0, math.nan), targets)])


def test_it_prints_its_size_and_not_its_numbers() -> None:
    assert repr(fit_laplace(*network())) == "Laplace of 12 weights in 2 tensors, fitted to 14 terms of the loss"


def test_wrong_use_is_refused_with_its_cure() -> None:
    net, batches = network()
    with pytest.raises(ValueError, match=r"the last layer of Sequential is not linear: .* use layers='all'"):
        fit_laplace(nn.Sequential(net, nn.Softmax(1)), batches)
    tied = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match=r"'0.weight', the last layer of Sequential, is used elsewhere too"):
        fit_laplace(tied, [(torch.ones(1, 2), torch.zeros(1, dtype=torch.long))])
    with pytest.raises(ValueError, match=r"structure='kron' is for the last layer"):
        fit_laplace(net, batches, layers="all", structure="kron")
    with pytest.raises(ValueError, match=r"5,130 x 5,130 and must have at most 5,000 weights; use structure='kron'"):
        fit_laplace(nn.Linear(512, 10), [(torch.ones(1, 512), torch.zeros(1, dtype=torch.long))])
    with pytest.raises(ValueError, match=r"the loader gave no batch"):
        fit_laplace(net, [])
    with pytest.raises(ValueError, match=r"prior_precision=0.0 must be > 0 and finite; 10 is the paper's"):
        fit_laplace(net, batches).posterior(0.0)
    with pytest.raises(ValueError, match=r"the targets are numbers; pass the variance of their noise"):
        fit_laplace(net, [(torch.ones(2, 2), torch.ones(2, 3))])
    with pytest.raises(
        ValueError, match=r"a target is class -100, and classes must be 0 to 2 for the network's 3 outp"
    ):
        fit_laplace(net, [(torch.ones(2, 2), torch.tensor([0, -100]))])
    with pytest.raises(ValueError, match=r"Jacobians of single examples, .* for GRU \(0\); use layers='last'"):
        fit_laplace(
            nn.Sequential(nn.GRU(2, 2)), [(torch.ones(2, 2), torch.tensor([0, 1]))], layers="all", structure="diag"
        )
