import pytest
import torch

from varlearn.data.examples import Examples, pixel_statistics


def test_empty_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="0 examples cannot be learned from"):
        Examples(torch.zeros(0, 1), torch.zeros(0), (), "table")


def test_as_many_targets_as_inputs() -> None:
    with pytest.raises(ValueError, match="3 inputs must have as many targets, not 2"):
        Examples(torch.zeros(3, 1), torch.zeros(2), (), "table")


def test_std_must_be_positive() -> None:
    with pytest.raises(ValueError, match="must hold one number > 0"):
        Examples(torch.zeros(3, 1), torch.zeros(3), (), "table", (0.0,), (0.0,))


def test_first_keeps_everything_else() -> None:
    examples = Examples(torch.arange(6.0).view(3, 2), torch.arange(3.0), (), "table", (1.0, 2.0), (3.0, 4.0))
    first = examples.first(2)
    assert first.inputs.tolist() == [[0, 1], [2, 3]]
    assert (first.mean, first.std, first.kind) == (examples.mean, examples.std, "table")


@pytest.mark.parametrize("n", [0, -1, 4])
def test_a_subset_larger_than_the_set_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match=f"n={n} must be between 1 and the 3"):
        Examples(torch.zeros(3, 1), torch.zeros(3), (), "table").first(n)


def test_first_tokens() -> None:
    tokens = Examples(torch.arange(5), torch.empty(0), (), "tokens", vocab=5)
    assert tokens.first(3).inputs.tolist() == [0, 1, 2]


def test_pixel_statistics_are_those_of_the_definition() -> None:
    images = torch.randint(0, 256, (7, 3, 5, 4), dtype=torch.uint8)
    mean, std = pixel_statistics(images)
    scaled = images.double() / 255
    assert mean == pytest.approx(scaled.mean((0, 2, 3)).tolist())
    assert std == pytest.approx(scaled.std((0, 2, 3), correction=0).tolist())


def test_a_constant_channel_can_be_divided_by() -> None:
    assert pixel_statistics(torch.zeros(2, 1, 2, 2, dtype=torch.uint8)) == ((0.0,), (1.0,))
