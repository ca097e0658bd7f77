"""The distance between two sets of inputs, against closed forms."""

import math

import pytest
import torch

from varlearn.metrics import input_shift


def test_samples_of_one_distribution_are_near() -> None:
    both = torch.randn(3_000, 20)
    assert input_shift(both[:2_000], both[2_000:]) < 0.1


@pytest.mark.parametrize("shift", [1.0, -3.0])
def test_a_moved_mean_is_measured_in_standard_deviations(shift: float) -> None:
    train, test = 5.0 * torch.randn(4_000, 10), 5.0 * torch.randn(4_000, 10) + 5.0 * shift
    assert input_shift(train, test) == pytest.approx(abs(shift), rel=0.05)


@pytest.mark.parametrize("factor", [255.0, 1 / 255])
def test_another_scale_around_zero_is_found(factor: float) -> None:
    inputs = torch.randn(2_000, 3, 4, 4)
    assert input_shift(inputs, factor * inputs) == pytest.approx(abs(factor - 1.0), rel=0.05)


def test_a_small_sample_is_not_far_by_chance() -> None:
    values = [input_shift(torch.randn(500, 50), torch.randn(10, 50)) for _ in range(5)]
    assert max(values) < 0.4


def test_constant_features_do_not_count() -> None:
    inputs = torch.randn(1_000, 4) * torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert input_shift(inputs, inputs + torch.tensor([2.0, 0.0, 9.0, 9.0])) == pytest.approx(math.sqrt(2.0), rel=0.05)
    assert input_shift(torch.ones(5, 2), torch.zeros(5, 2)) == 0.0


def test_inputs_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        input_shift(torch.zeros(5, 2), torch.zeros(5, 3))
