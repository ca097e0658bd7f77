"""Normals of several keys at once against those of one key at a time."""

import pytest
import torch

from varlearn.core.joined import joined_normals
from varlearn.core.noise import normal_

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [[4, 6], [5, 1, 0, 8, 3], [0], [1], [257, 1000, 63]])
def test_joined_normals_are_those_of_each_key(sizes: list[int], dtype: torch.dtype) -> None:
    keys = [(1 << 63) + 11 * number for number in range(len(sizes))]  # also those that are negative as int64
    found = joined_normals(keys, sizes, dtype, CPU)
    assert [len(part) for part in found] == sizes
    for key, part in zip(keys, found, strict=True):
        # How a vector loop ends may differ, by an ulp of log, sin or cos.
        torch.testing.assert_close(part, normal_(torch.empty(len(part), dtype=dtype), key), rtol=1e-6, atol=1e-7)


def test_no_run_writes_into_another() -> None:
    first, second = joined_normals([3, 4], [3, 3], torch.float32, CPU)
    before = second.clone()
    first.zero_()
    assert torch.equal(second, before)
    again = joined_normals([3, 4], [3, 3], torch.float32, CPU)
    assert torch.equal(again[1], before)
    assert not torch.equal(again[0], first)
