"""NLL against the number of samples: each entry is the NLL of a prediction with that many samples."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from varlearn import metrics
from varlearn.posterior import DiagGaussian, Mixture
from varlearn.prediction import predict, predict_regression, predict_tokens


def batches(targets: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    inputs = torch.randn(len(targets), 3)
    return [(inputs[:4], targets[:4]), (inputs[4:], targets[4:])]


@pytest.mark.parametrize("vectorize", [False, True])
def test_each_entry_is_the_nll_with_that_many_samples(around: Callable[..., DiagGaussian], vectorize: bool) -> None:
    net, data = nn.Linear(3, 2), batches(torch.randint(2, (7,)))
    q = around(net, 0.5)
    curve = predict(net, q, data, samples=5, vectorize=vectorize).nll_by_samples
    assert curve is not None
    for s in range(1, 6):
        found = predict(net, q, data, samples=s)
        assert found.targets is not None
        assert curve[s - 1].item() == pytest.approx(metrics.nll(found.log_probs, found.targets), abs=1e-6)


def test_components_of_unequal_weight(around: Callable[..., DiagGaussian]) -> None:
    net, data = nn.Linear(3, 2), batches(torch.randint(2, (7,)))
    q = around(net, 0.5)
    found = predict(net, Mixture((q, q.tempered(4.0)), (0.25, 0.75)), data, samples=3)
    assert found.targets is not None
    assert found.nll_by_samples is not None
    assert found.nll_by_samples.shape == (6,)
    assert found.nll_by_samples[-1].item() == pytest.approx(metrics.nll(found.log_probs, found.targets), abs=1e-6)


def test_regression_and_language(around: Callable[..., DiagGaussian]) -> None:
    net = nn.Linear(3, 1)
    found = predict_regression(net, around(net), batches(torch.randn(7, 1)), samples=3, noise_variance=0.1)
    assert found.nll_by_samples is not None
    assert found.log_density is not None
    assert found.nll_by_samples[-1].item() == pytest.approx(-found.log_density.double().mean().item(), abs=1e-6)
    bigrams, text = nn.Embedding(2, 2), torch.tensor([[0, 1, 1, 0]])
    tokens = predict_tokens(bigrams, around(bigrams), [(text, text)], samples=3, shift=True)
    assert tokens.nll_by_samples is not None
    assert tokens.nll_by_samples[-1].item() == pytest.approx(-tokens.log_probs.double().mean().item(), abs=1e-6)


def test_without_classes_as_targets_there_is_none(around: Callable[..., DiagGaussian]) -> None:
    net = nn.Linear(3, 2)
    assert predict(net, around(net), [torch.randn(2, 3)], samples=2).nll_by_samples is None
    assert predict(net, around(net), batches(torch.full((7,), -1)), samples=2).nll_by_samples is None
    silent = predict_regression(
        nn.Linear(3, 1), around(nn.Linear(3, 1)), batches(torch.randn(7, 1)), 2, noise_variance=0.0
    )
    assert silent.nll_by_samples is None  # no noise, no density
