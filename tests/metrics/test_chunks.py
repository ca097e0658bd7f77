"""Cutting covers every row once; merging weighted means is the mean of the whole."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varlearn.metrics import chunks
from varlearn.metrics.chunks import merge_means, row_slices

FINITE = st.floats(-1e6, 1e6)


@given(st.integers(0, 500), st.integers(1, 40), st.integers(1, 64))
def test_slices_cover_every_row_once_within_the_limit(rows: int, width: int, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_ELEMENTS", limit)
        slices = list(row_slices(rows, width))
    assert [i for s in slices for i in range(s.start, s.stop)] == list(range(rows))
    assert all((s.stop - s.start) * width <= max(limit, width) for s in slices)


@given(st.lists(st.lists(FINITE, min_size=1, max_size=6), min_size=1, max_size=6))
def test_merging_chunk_means_gives_the_mean_of_all(parts: list[list[float]]) -> None:
    everything = [x for part in parts for x in part]
    merged = merge_means((math.fsum(part) / len(part), len(part)) for part in parts)
    assert merged == pytest.approx(math.fsum(everything) / len(everything), rel=1e-12, abs=1e-9)


def test_infinite_values_and_weightless_nan() -> None:
    assert merge_means([(math.inf, 1), (1.0, 3)]) == math.inf
    assert merge_means([(math.nan, 0), (2.0, 3)]) == 2.0
    assert math.isnan(merge_means([(math.nan, 1), (2.0, 3)]))


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_bad_weight_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match=r"weight=.* must be finite and >= 0; use the number of examples"):
        merge_means([(1.0, weight)])


@pytest.mark.parametrize("parts", [[], [(1.0, 0)]])
def test_nothing_to_merge_is_refused(parts: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="no part with weight > 0"):
        merge_means(parts)


def test_slices_are_as_long_as_the_limit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 8 * chunks.CHUNK_ELEMENTS == 32 << 20  # bytes of a float64 temporary
    monkeypatch.setattr(chunks, "CHUNK_ELEMENTS", 10)
    assert list(row_slices(25)) == [slice(0, 10), slice(10, 20), slice(20, 25)]
    assert list(row_slices(5, width=5)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert list(row_slices(2, width=11)) == [slice(0, 1), slice(1, 2)]
    assert list(row_slices(3, width=0)) == [slice(0, 3)]
