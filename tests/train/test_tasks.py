"""Losses and scores at one setting of the weights, against the metrics of the library."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from varlearn import metrics
from varlearn.train.tasks import MeanVariance, Task, as_scores, mean_loss, score_at_weights


def scores(model: nn.Module, task: Task, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, float]:
    return as_scores(task, score_at_weights(model, model, partial(mean_loss, task), batches))


def test_classification() -> None:
    model, x, y = nn.Linear(4, 3), torch.randn(50, 4), torch.randint(3, (50,))
    found = scores(model, "classification", [(x[:33], y[:33]), (x[33:], y[33:])])  # batches of unequal size
    log_probs = model(x).log_softmax(-1).detach()
    assert found["nll"] == pytest.approx(metrics.nll(log_probs, y), rel=1e-6)
    assert found["accuracy"] == pytest.approx(metrics.accuracy(log_probs, y))


def test_language() -> None:
    model, text = nn.Embedding(5, 5), torch.randint(5, (6, 9))
    found = scores(model, "language", [(text[:, :-1], text[:, 1:])])
    log_probs = model(text[:, :-1]).log_softmax(-1).gather(-1, text[:, 1:, None]).detach()
    assert found["perplexity"] == pytest.approx(metrics.perplexity(log_probs), rel=1e-6)


def test_regression() -> None:
    model, x, y = nn.Sequential(nn.Linear(2, 2), MeanVariance()), torch.randn(40, 2), torch.randn(40)
    found = scores(model, "regression", [(x, y)])
    mean, variance = (part.detach().flatten() for part in model(x))
    assert found["nll"] == pytest.approx(metrics.gaussian_nll(mean, variance, y), rel=1e-5)
    assert found["rmse"] == pytest.approx(metrics.rmse(mean, y), rel=1e-6)


def test_a_standard_normal_at_its_mean() -> None:
    loss = mean_loss("regression", (torch.zeros(1), torch.ones(1)), torch.zeros(1))
    assert loss.item() == pytest.approx(0.5 * math.log(2 * math.pi))


def test_the_variance_stays_positive() -> None:
    _, variance = MeanVariance()(torch.tensor([[0.0, -1000.0]]))
    assert variance.item() > 0


def test_modes_come_back() -> None:
    model = nn.Sequential(nn.Linear(1, 2), nn.Dropout(0.5))
    model[0].eval()
    seen = []
    model[1].register_forward_hook(lambda module, inputs, outputs: seen.append(module.training))
    scores(model, "classification", [(torch.ones(1, 1), torch.tensor([0]))])
    assert seen == [False]
    assert [module.training for module in model.modules()] == [True, False, True]
