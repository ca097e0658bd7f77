"""The protocols hold for what the package offers, and for a user's own class without a base class."""

import pytest
import torch
from torch import nn

from varlearn.posterior import DiagGaussian, LowRankGaussian, Mixture, Point
from varlearn.prediction import Dropout, Linearized, Weights, predict
from varlearn.types import Params, Posterior, Sampler

MEAN = {"weight": torch.zeros(2, 1)}
ONES = {"weight": torch.ones(2, 1)}
POSTERIORS = [
    DiagGaussian(MEAN, ONES, ess=1.0),
    LowRankGaussian(MEAN, ONES, {"weight": torch.ones(2, 2, 1)}),
    Point(MEAN),
    Mixture([Point(MEAN)]),
]


@pytest.mark.parametrize("posterior", POSTERIORS, ids=lambda q: type(q).__name__)
def test_posteriors_follow_the_protocol(posterior: Posterior) -> None:
    assert isinstance(posterior, Posterior)
    assert not isinstance(posterior, Sampler)
    for values in (posterior.mean, posterior.std, posterior.sample(seed=0, index=3)):
        assert {name: value.shape for name, value in values.items()} == {"weight": (2, 1)}
    again = posterior.to("cpu", torch.float64)
    assert type(again) is type(posterior)
    assert again.sample()["weight"].dtype == torch.float64


@pytest.mark.parametrize("sampler", [Weights(POSTERIORS[0]), Linearized(POSTERIORS[0]), Dropout()])
def test_samplers_follow_the_protocol(sampler: Sampler) -> None:
    assert isinstance(sampler, Sampler)
    assert not isinstance(sampler, Posterior)


class Coin:
    """A user's posterior: all weights +1 or all -1."""

    mean = MEAN
    std = ONES
    fixed = None

    def sample(self, seed: int | torch.Generator = 0, index: int = 0) -> Params:
        return {"weight": torch.full((2, 1), 1.0 if index % 2 else -1.0)}

    def to(self, device=None, dtype=None):
        return self


def test_a_posterior_needs_no_base_class() -> None:
    logits = torch.tensor([[1.0], [-1.0]])
    net = nn.Linear(1, 2, bias=False)
    inputs = torch.tensor([[1.0], [2.0]])
    log_probs = predict(net, Coin(), [inputs], samples=2).log_probs
    plus = torch.softmax(inputs * torch.ones(1, 2), -1)
    torch.testing.assert_close(log_probs.exp(), plus)  # equal logits under either sign
    assert logits.shape == (2, 1)
