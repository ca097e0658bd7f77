import math

import pytest
import torch

from varlearn.posterior import draw
from varlearn.posterior.draw import FACTORS, WEIGHTS, normals, positions, uniform


def test_positions_do_not_depend_on_the_order_of_names() -> None:
    assert positions(["b", "a", "c"]) == positions(["c", "b", "a"]) == {"a": 0, "b": 1, "c": 2}


def test_every_coordinate_changes_the_numbers() -> None:
    like = torch.zeros(50)
    draws = [
        normals(like, 0, 0),
        normals(like, 1, 0),
        normals(like, 0, 1),
        normals(like, 0, 0, position=1),
        normals(like, 0, 0, stream=FACTORS),
    ]
    for first in range(len(draws)):
        for second in range(first):
            assert not torch.equal(draws[first], draws[second])
    assert torch.equal(draws[0], normals(like, 0, 0, 0, WEIGHTS))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_numbers_are_at_least_float32(dtype: torch.dtype, expected: torch.dtype) -> None:
    assert normals(torch.zeros(2, dtype=dtype), 0, 0).dtype == expected


def test_a_generator_is_a_stream() -> None:
    generator = torch.Generator().manual_seed(3)
    first, second = normals(torch.zeros(4), generator, 0), normals(torch.zeros(4), generator, 0)
    assert not torch.equal(first, second)
    assert torch.equal(first, normals(torch.zeros(4), torch.Generator().manual_seed(3), index=99))


def test_shapes_without_elements_or_dimensions() -> None:
    assert normals(torch.zeros(0, 3), 0, 0).shape == (0, 3)
    assert normals(torch.zeros(()), 0, 0).shape == ()


def test_uniform_is_uniform() -> None:
    values = sorted(uniform(seed=5, index=index) for index in range(2000))
    # Kolmogorov-Smirnov distance, 1 in 10^4 critical value
    distance = max(abs(value - (rank + 0.5) / 2000) for rank, value in enumerate(values))
    assert distance < 2.23 / math.sqrt(2000)
    assert values[0] >= 0.0
    assert values[-1] <= 1.0


def test_noise_by_name_is_that_of_each_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "_LARGE", 100)
    like = {
        "c": torch.zeros(7, 3),
        "large": torch.zeros(50, 5),
        "b": torch.zeros(4, dtype=torch.float64),
        "a": torch.zeros((), dtype=torch.bfloat16),
        "none": torch.zeros(0, 2),
    }
    found = draw.normals_by_name(like, seed=3, index=4)
    assert found.keys() == like.keys()
    for name, position in positions(like).items():
        expected = normals(like[name], 3, 4, position)
        assert found[name].shape == expected.shape
        torch.testing.assert_close(found[name], expected, rtol=1e-6, atol=1e-7)


def test_noise_by_name_from_a_generator_is_a_stream() -> None:
    like = {"a": torch.zeros(3), "b": torch.zeros(2)}
    found = draw.normals_by_name(like, torch.Generator().manual_seed(3), index=0)
    generator = torch.Generator().manual_seed(3)
    assert all(torch.equal(found[name], normals(like[name], generator, 0)) for name in like)
