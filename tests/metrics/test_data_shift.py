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


def test_two_examples_are_enough_and_chance_is_taken_off_exactly() -> None:
    train, pair, four = (torch.tensor(values)[:, None] for values in ([0.0, 2.0], [10.0, 12.0], [9.0, 13.0, 9.0, 13.0]))
    assert input_shift(train, pair) == pytest.approx(7.0)  # (10 / sqrt 2)^2 - 1/2 - 1/2 = 49
    assert input_shift(train, four) == pytest.approx(math.sqrt(50 - 1 / 2 - 1 / 4))
    assert input_shift(four, train) == pytest.approx(math.sqrt(10**2 / (16 / 3) - 1 / 2 - 1 / 4))
    for few in (train[:1], pair[:1]):
        with pytest.raises(ValueError, match="give at least two"):
            input_shift(few, pair)
        with pytest.raises(ValueError, match="give at least two"):
            input_shift(pair, few)


@pytest.mark.parametrize(("std", "counts"), [(1.5e-6, True), (0.9e-6, False)])
def test_a_feature_counts_above_a_millionth_of_the_largest_deviation(std: float, counts: bool) -> None:
    alternating = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(50)
    train = torch.stack([alternating, std * alternating], 1)
    assert (input_shift(train, train + torch.tensor([0.0, 1.0])) > 1.0) == counts
