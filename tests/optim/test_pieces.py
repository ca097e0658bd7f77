"""Where parameters are cut and joined."""

import pytest
import torch

from varlearn.optim import pieces
from varlearn.optim.tasks import Draw, Noise


def segments(sizes: list[int], limit: int) -> list[list[tuple[int, int, int]]]:
    """(which task, start, stop), piece by piece."""
    tasks = [Draw(*[torch.zeros(size)] * 3, noise=Noise(0, 1.0, 1.0)) for size in sizes]
    numbers = {id(task): number for number, task in enumerate(tasks)}
    return [[(numbers[id(s.task)], s.start, s.stop) for s in piece] for piece in pieces.cut(tasks, limit)]


def test_large_ones_are_cut_evenly_and_do_not_part_the_small_ones() -> None:
    cut = [[(1, 0, 86)], [(1, 86, 170)], [(4, 0, 90)], [(0, 0, 3), (2, 0, 10)]]
    assert segments([3, 170, 10, 0, 90], limit=80) == cut


@pytest.mark.parametrize("sizes", [[1], [7] * 40, [1_000, 3, 999], [121, 119, 10, 10, 41]], ids=str)
def test_every_element_is_in_one_piece(sizes: list[int]) -> None:
    limit = 80
    cut = segments(sizes, limit)
    seen = sorted((task, place) for piece in cut for task, start, stop in piece for place in range(start, stop))
    assert seen == [(task, place) for task, size in enumerate(sizes) for place in range(size)]
    assert all(sum(stop - start for _, start, stop in piece) <= 1.5 * limit + 1 for piece in cut)
    assert all(start % 2 == 0 for piece in cut for _, start, _ in piece)  # noise comes in pairs
