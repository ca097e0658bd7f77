"""Perplexity against products worked by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from varlearn.metrics import chunks, merge_means, nll_per_token, perplexity

LOG_PROBS = st.lists(st.floats(-20, 0), min_size=1, max_size=40)


def test_hand_worked() -> None:
    assert perplexity(torch.tensor([0.5, 0.25, 0.125], dtype=torch.float64).log()) == pytest.approx(4)  # 64^(1/3)
    uniform = torch.full((3, 5), 1 / 50_257, dtype=torch.float64).log()
    assert perplexity(uniform) == pytest.approx(50_257)
    assert perplexity(torch.zeros(4)) == 1.0


@given(LOG_PROBS, st.integers(1, 40), st.integers(1, 10))
def test_chunks_combine_under_the_logarithm(values: list[float], cut: int, limit: int) -> None:
    tokens = torch.tensor(values, dtype=torch.float64)
    expected = math.exp(-math.fsum(values) / len(values))
    parts = [tokens[i : i + cut] for i in range(0, len(values), cut)]
    merged = math.exp(merge_means([(math.log(perplexity(part)), len(part)) for part in parts]))
    assert merged == pytest.approx(expected, rel=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_ELEMENTS", limit)
        assert perplexity(tokens) == pytest.approx(expected, rel=1e-12)


@given(LOG_PROBS, st.integers(0, 10_000))
def test_masked_tokens_do_not_count_whatever_they_hold(values: list[float], seed: int) -> None:
    tokens = torch.tensor(values, dtype=torch.float64)
    mask = torch.rand(len(values), generator=torch.Generator().manual_seed(seed)) < 0.5
    mask[0] = True
    padded = torch.where(mask, tokens, torch.nan)
    assert nll_per_token(padded[None], mask[None]) == pytest.approx(nll_per_token(tokens[mask]), rel=1e-12)


def test_probability_zero_and_overflow_are_infinite() -> None:
    assert perplexity(torch.tensor([-1.0, -float("inf")])) == math.inf
    assert perplexity(torch.tensor([-1e5], dtype=torch.float64)) == math.inf


def test_ten_million_half_precision_tokens_keep_float64_accuracy() -> None:
    tokens = torch.tensor([-1.0, -3.0]).half().repeat(5_000_000)
    assert nll_per_token(tokens) == 2.0


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"token_log_probs row 1 is 0.5, must be <= 0; pass log-probabilities"):
        perplexity(torch.tensor([-0.5, 0.5]))
    with pytest.raises(ValueError, match="token_log_probs row 0 is nan"):
        perplexity(torch.tensor([float("nan")]))
    with pytest.raises(ValueError, match="token_log_probs is empty"):
        perplexity(torch.tensor([-1.0]), torch.tensor([False]))
    with pytest.raises(ValueError, match=r"mask has dtype torch.int64 and shape \(1,\), must be bool"):
        perplexity(torch.tensor([-1.0]), torch.tensor([1]))


def test_rounding_above_zero_is_accepted_up_to_a_thousandth() -> None:
    assert perplexity(torch.tensor([1e-3], dtype=torch.float64)) == pytest.approx(math.exp(-1e-3), rel=1e-12)
    with pytest.raises(ValueError, match=r"row 2 is 0.0011, must be <= 0"):
        perplexity(torch.tensor([-1.0, 1e-3, 1.1e-3, 2.0], dtype=torch.float64))
