"""One parameter of more than 2^31 elements, by arithmetic alone: indices and counters do not overflow."""

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.optim.engine.problems import needs_compiler
from varlearn.core.noise import GOLDEN, Grid, normal_, normal_on_grid
from varlearn.optim.engine.native import compilation

PLACES = [2**31 - 8, 2**31, 2**32 - 8, 2**32, 2**33 + 1, 2**40]
WORD = 2**64 - 1

# The spans of the kernel on a short buffer, whose first element has the number `start`.
DRIVER = """
#include "{kernel}"
EXPORT void draw_at(uint64_t key, int64_t start, int64_t count, float *out)
{{
    float mean[64] = {{0}}, hess[64];
    for (int i = 0; i < 64; i++) hess[i] = 1.0f;
    Scale scale = {{1.0f, 0.0f, 1e-30f}};
    Draw task = {{start + count, out - start, mean - start, NULL, hess - start, {{key, NULL}}, &scale}};
    draw_span(&task, start, start + count, 0);
}}
static int64_t visited, last;
static int count_span(const void *task, int64_t start, int64_t stop, int past_cache)
{{
    visited += stop - start;
    if (stop > last) last = stop;
    return start < stop;
}}
EXPORT int64_t visit(int64_t size, int64_t *end)
{{
    int64_t sizes[2] = {{size, 5}};
    visited = last = 0;
    run(count_span, (const char *)sizes, sizeof *sizes, NULL, 2, 1);
    *end = last;
    return visited;
}}
"""


def exact(key: int, number: int) -> float:
    """Normal number `number` of a key, with Python's integers and floats."""
    word = (key + (number // 2 + 1) * GOLDEN) & WORD
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & WORD
    word ^= word >> 31
    radius = math.sqrt(-2.0 * math.log(((word >> 33) + 0.5) / 2**31))
    angle = 2.0 * math.pi * (word & 0xFFFFFFFF) / 2**32
    return radius * (math.sin(angle) if number % 2 else math.cos(angle))


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    source = tmp_path_factory.mktemp("driver") / "driver.c"
    source.write_text(DRIVER.format(kernel=Path(compilation.__file__).parent / "kernel.c"))
    return compilation.load(source)


@pytest.mark.parametrize("start", PLACES)
def test_the_numbers_of_a_far_shard_are_exact(start: int) -> None:
    ours = normal_(torch.empty(16, dtype=torch.float64), 7, offset=start)
    assert ours.tolist() == pytest.approx([exact(7, start + i) for i in range(16)], abs=1e-9)


@pytest.mark.parametrize("start", PLACES)
def test_the_numbers_of_a_far_part_of_a_grid_are_exact(start: int) -> None:
    width = 2**20
    row, column = divmod(start, width)
    columns = torch.arange(column, column + 5)
    ours = normal_on_grid(Grid((torch.tensor([row, row + 1]), columns), (width, 1)), 7, torch.float64)
    expected = [[exact(7, r * width + c) for c in range(column, column + 5)] for r in (row, row + 1)]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64), rtol=0.0, atol=1e-9)


@needs_compiler
@pytest.mark.parametrize("start", [place - place % 2 for place in PLACES])
def test_the_kernel_draws_the_same_numbers_there(kernel: ctypes.CDLL, start: int) -> None:
    out = (ctypes.c_float * 40)()
    draw: Callable[..., None] = kernel.draw_at
    draw(ctypes.c_uint64(7), ctypes.c_int64(start), ctypes.c_int64(40), out)
    assert list(out) == pytest.approx([exact(7, start + i) for i in range(40)], abs=3e-6)


@needs_compiler
@pytest.mark.parametrize("size", [2**31 + 1, 2**32 + 3])
def test_the_kernel_visits_every_element_once(kernel: ctypes.CDLL, size: int) -> None:
    end = ctypes.c_int64()
    visit: Callable[..., int] = kernel.visit
    visit.restype = ctypes.c_int64  # type: ignore[attr-defined]
    assert visit(ctypes.c_int64(size), ctypes.byref(end)) == size + 5
    assert end.value == size
