"""The small operations of plans, at the edges."""

import math

import pytest
import torch

from varlearn.optim.engine.tensor_operations import all_finite, bounded, fold_in_mean, refresh_mean, scaled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_all_finite_is_not_misled_by_sums_that_overflow(dtype: torch.dtype) -> None:
    large = torch.full((1000,), torch.finfo(dtype).max, dtype=dtype)
    assert all_finite([large, -large, torch.zeros(0)])
    assert all_finite([])
    for bad in (math.nan, math.inf, -math.inf):
        large[777] = bad
        assert not all_finite([torch.zeros(3), large])


def test_a_running_mean_forgets_what_was_in_its_memory() -> None:
    mean = torch.full((3,), math.nan)
    fold_in_mean(mean, torch.ones(3), count=0)
    fold_in_mean(mean, None, count=1)
    assert mean.tolist() == [0.5] * 3


def test_a_finer_mean_is_kept_where_the_parameter_was_not_written_to() -> None:
    mean = torch.tensor([1.0001, 2.0001])
    param = mean.bfloat16()
    param[1] = 3.0
    refresh_mean(param, mean)
    assert mean.tolist() == pytest.approx([1.0001, 3.0], abs=1e-7)


def test_values_are_bounded_to_what_the_parameter_can_hold() -> None:
    values = torch.tensor([1e6, -1e6, 1.0])
    assert bounded(values.clone(), torch.float32).tolist() == [1e6, -1e6, 1.0]
    assert bounded(values, torch.float16).half().tolist() == [65504.0, -65504.0, 1.0]


def test_a_factor_of_one_copies_nothing() -> None:
    values = torch.ones(3)
    assert scaled(values, 1.0) is values
    assert scaled(values, -2.0).tolist() == [-2.0] * 3
    assert values.tolist() == [1.0] * 3
