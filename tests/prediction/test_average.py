import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from varlearn.prediction import log_average
from varlearn.prediction.average import entropy


def test_two_samples_by_hand() -> None:
    probs = torch.tensor([[[0.9, 0.1]], [[0.3, 0.7]]])
    torch.testing.assert_close(log_average(probs.log()), torch.tensor([[0.6, 0.4]]).log())


def test_it_is_not_the_mean_of_logs() -> None:
    log_probs = torch.tensor([[0.0], [-20.0]])
    assert log_average(log_probs).item() == pytest.approx(-math.log(2.0), abs=1e-6)


def test_no_underflow() -> None:
    assert log_average(torch.tensor([[-1000.0], [-1001.0]])).item() == pytest.approx(
        -1000.0 + math.log((1 + math.exp(-1)) / 2)
    )


def test_impossible_under_one_or_all_samples() -> None:
    inf = math.inf
    average = log_average(torch.tensor([[0.0, -inf], [-inf, -inf]]))
    assert average.tolist() == pytest.approx([-math.log(2.0), -inf])
    running = log_average(torch.tensor([[-inf]]), torch.zeros(1), running=torch.tensor([-inf]))
    assert running.item() == -inf


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6))
def test_any_split_into_calls_gives_the_same(first: int, second: int, seed: int) -> None:
    make = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(first + second, 3, 4, generator=make, dtype=torch.float64).log_softmax(-1)
    weights = torch.rand(first + second, generator=make, dtype=torch.float64).log_softmax(0)
    whole = log_average(log_probs, weights)
    parts = log_average(log_probs[:first], weights[:first])
    parts = log_average(log_probs[first:], weights[first:], running=parts)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(whole.exp(), (weights.exp()[:, None, None] * log_probs.exp()).sum(0))
    torch.testing.assert_close(whole.logsumexp(-1), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)


def test_512_samples_one_by_one_stay_normalized_in_float32() -> None:
    log_probs = torch.randn(512, 20, 10).log_softmax(-1)
    log_weight = torch.tensor([-math.log(512)], dtype=torch.float64)
    running = None
    for sample in log_probs:
        running = log_average(sample[None], log_weight, running)
    assert running is not None
    torch.testing.assert_close(running, log_average(log_probs), atol=5e-6, rtol=0)


def test_entropy_bounds() -> None:
    log_probs = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]).log()
    torch.testing.assert_close(entropy(log_probs), torch.tensor([0.0, math.log(4.0)]))
