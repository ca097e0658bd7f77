"""The Laplace approximation compared with laplace-torch, where it is installed.

It asks for torchvision, which it does not import. Install it without:
`pip install --no-deps laplace-torch==0.3 asdfghjkl==0.1a4 asdl==0.1.5`.
"""

import warnings
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.approximations.test_laplace_fit import covariance, network
from varlearn import fit_laplace
from varlearn.approximations.laplace_fit import Laplace
from varlearn.posterior import DiagGaussian, LowRankGaussian
from varlearn.prediction import predict

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    laplace = pytest.importorskip("laplace", reason="laplace-torch is not installed")
    from laplace.curvature import CurvlinopsGGN

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]
CASES = [("last", "full"), ("last", "kron"), ("last", "diag"), ("all", "full"), ("all", "diag")]


def both(layers: str, structure: str, precision: float = 0.7) -> tuple[Any, Laplace]:
    net, batches = network()
    data = TensorDataset(*(torch.cat([batch[part] for batch in batches]) for part in (0, 1)))
    subset = {"last": "last_layer", "all": "all"}[layers]
    theirs = laplace.Laplace(
        net,
        "classification",
        subset_of_weights=subset,
        hessian_structure=structure,
        prior_precision=precision,
        backend=CurvlinopsGGN,
    )
    theirs.fit(DataLoader(data, batch_size=5))
    return theirs, fit_laplace(net, batches, layers=layers, structure=structure)  # type: ignore[arg-type]


@pytest.mark.parametrize(("layers", "structure"), CASES)
def test_covariances_and_marginal_likelihoods_are_equal(layers: str, structure: str) -> None:
    theirs, ours = both(layers, structure)
    assert ours.log_marginal_likelihood(0.7) == pytest.approx(float(theirs.log_marginal_likelihood()), abs=1e-4)
    q = ours.posterior(0.7)
    if isinstance(q, LowRankGaussian):
        torch.testing.assert_close(theirs.posterior_covariance.double(), covariance(q), rtol=1e-4, atol=1e-5)
    elif isinstance(q, DiagGaussian):
        found = torch.cat([std.flatten().square() for std in q.std.values()])
        torch.testing.assert_close(found, theirs.posterior_variance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("layers", "structure"), CASES)
def test_linearized_predictions_agree(layers: str, structure: str) -> None:
    theirs, ours = both(layers, structure)
    net, _ = network()
    inputs = torch.tensor([[0.5, -1.0], [3.0, 3.0]])
    torch.manual_seed(0)
    expected = theirs(inputs, pred_type="glm", link_approx="mc", n_samples=4_000)
    found = predict(net, ours.posterior(0.7), [inputs], samples=1_000, progress=False).log_probs.exp()
    assert (found - expected).abs().max() < 0.04


def test_the_best_precision_has_the_largest_marginal_likelihood_of_both() -> None:
    theirs, ours = both("last", "full")
    theirs.optimize_prior_precision(method="marglik", n_steps=500, lr=0.1)
    best = ours.best_precision()
    found = float(theirs.log_marginal_likelihood(prior_precision=torch.tensor([best])))
    assert found == pytest.approx(float(theirs.log_marginal_likelihood()), abs=1e-3)
