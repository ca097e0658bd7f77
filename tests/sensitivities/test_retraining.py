"""Leave-one-out against training again without each example, in float64: logistic regression on breast cancer."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import varlearn
from varlearn.metrics.ranking import midranks
from varlearn.posterior import DiagGaussian

LEFT_OUT, DECAY = 100, 10.0


class TwoClasses(nn.Module):
    """Logits 0 and w . x."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = nn.Parameter(weights)

    def forward(self, x: Tensor) -> Tensor:
        logit = x @ self.weights
        return torch.stack([torch.zeros_like(logit), logit], 1)


class Problem(NamedTuple):
    x: Tensor
    y: Tensor
    w: Tensor
    chosen: Tensor
    changes: Tensor  # of the logit of each chosen example when it is left out
    hessian: Tensor  # of the sum of losses at w, with the decay


def fitted(x: Tensor, y: Tensor, start: Tensor) -> Tensor:
    """argmin of the sum of cross-entropies plus DECAY |w|^2 / 2, by Newton's method."""
    w = start.clone()
    for _ in range(50):
        p = torch.sigmoid(x @ w)
        step = torch.linalg.solve(hessian_at(x, w), x.T @ (p - y) + DECAY * w)
        w -= step
        if step.norm() < 1e-12:
            break
    return w


def hessian_at(x: Tensor, w: Tensor) -> Tensor:
    p = torch.sigmoid(x @ w)
    return (x * (p * (1 - p))[:, None]).T @ x + DECAY * torch.eye(x.shape[1], dtype=x.dtype)


@pytest.fixture(scope="module")
def problem() -> Problem:
    from sklearn.datasets import load_breast_cancer

    data, labels = load_breast_cancer(return_X_y=True)
    x, y = torch.from_numpy(data), torch.from_numpy(labels).double()
    x = torch.cat([(x - x.mean(0)) / x.std(0), torch.ones(len(x), 1)], 1)
    w = fitted(x, y, torch.zeros(x.shape[1], dtype=torch.float64))
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:LEFT_OUT]
    changes = []
    for i in chosen.tolist():
        rest = [j for j in range(len(x)) if j != i]
        changes.append(x[i] @ (fitted(x[rest], y[rest], w) - w))
    return Problem(x, y, w, chosen, torch.stack(changes), hessian_at(x, w))


def rank_correlation(a: Tensor, b: Tensor) -> float:
    return torch.corrcoef(torch.stack([midranks(a), midranks(b)]))[0, 1].item()


def slope(found: Tensor, true: Tensor) -> float:
    """Of the line through 0 that fits true = slope * found best."""
    return ((found @ true) / (found @ found)).item()


def deviations(problem: Problem, x: Tensor, w: Tensor, variance: Tensor) -> varlearn.Sensitivity:
    """Sensitivities of the chosen examples with the features x and a diagonal covariance."""
    q = DiagGaussian({"weights": w}, {"weights": 1 / variance}, ess=1.0)
    batch = (x[problem.chosen], problem.y[problem.chosen].long())
    return varlearn.sensitivity(TwoClasses(w).double(), q, [batch])


def test_with_the_full_covariance_it_is_that_of_training_again(problem: Problem) -> None:
    """Features times the root of the covariance make a model whose covariance is the identity."""
    root = torch.linalg.cholesky(torch.linalg.inv(problem.hessian))
    w = torch.linalg.solve(root, problem.w)
    found = deviations(problem, problem.x @ root, w, torch.ones_like(w))
    first_order = found.deviation[:, 1]
    correlation = rank_correlation(first_order.abs(), problem.changes.abs())
    print(f"full covariance: rank correlation {correlation:.5f}, slope {slope(first_order, problem.changes):.3f}")
    assert correlation >= 0.999
    ratio = (problem.changes / first_order).median().item()
    print(f"median of true to estimated changes: {ratio:.3f}")
    assert ratio == pytest.approx(1, abs=0.05)
    # To first order the largest changes, of misclassified examples far from the others, are too small by a fifth. The
    # same v makes one step of Newton's method of them, as `refitted_outputs` does for regressions.
    v, p = first_order / found.error[:, 1], found.probs[:, 1]
    newton = first_order / (1 - v * p * (1 - p))
    print(f"one step of Newton's method: slope {slope(newton, problem.changes):.3f}")
    assert slope(newton, problem.changes) == pytest.approx(1, abs=0.05)
    assert rank_correlation(newton.abs(), problem.changes.abs()) >= 0.999


def test_the_diagonal_covariance_is_better_than_the_error_alone(problem: Problem) -> None:
    found = deviations(problem, problem.x, problem.w, 1 / problem.hessian.diagonal())
    true = problem.changes.abs()
    diagonal, error = (rank_correlation(value[:, 1].abs(), true) for value in (found.deviation, found.error))
    print(f"diagonal: rank correlation {diagonal:.5f}, slope {slope(found.deviation[:, 1], problem.changes):.3f}")
    print(f"|e| alone: rank correlation {error:.5f}")
    assert 1 - diagonal <= (1 - error) / 2
