"""Noise is a function of key and position: known answers, an independent transcription, and what it must not touch."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from varlearn.core import noise
from varlearn.core.noise import Grid, advanced, derive_key, fold_in, normal_, normal_on_grid

# The first outputs of SplitMix64 for the seed 0, as published with the generator.
SPLITMIX64 = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]


def box_muller(word: int) -> tuple[float, float]:
    """The two normals of a 64-bit word, as the module's docstring defines them."""
    radius = math.sqrt(-2.0 * math.log(((word >> 33) + 0.5) / 2.0**31))
    lower = word & 0xFFFFFFFF
    angle = 2.0 * math.pi * (lower - (lower >> 31 << 32)) / 2.0**32
    return radius * math.cos(angle), radius * math.sin(angle)


def splitmix64(key: int, position: int) -> int:
    """Output number `position` of SplitMix64, in Python's integers."""
    word = (key + (position + 1) * 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 2e-6)])
def test_known_answers(dtype: torch.dtype, tolerance: float) -> None:
    expected = [number for word in SPLITMIX64 for number in box_muller(word)]
    ours = normal_(torch.empty(10, dtype=dtype), key=0)
    torch.testing.assert_close(ours.double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=tolerance)


@given(key=st.integers(0, 2**64 - 1), offset=st.integers(0, 2**40), size=st.integers(0, 9))
def test_any_key_and_offset_agree_with_the_transcription(key: int, offset: int, size: int) -> None:
    ours = normal_(torch.empty(size, dtype=torch.float64), key, offset)
    pairs = [box_muller(splitmix64(key, position // 2))[position % 2] for position in range(offset, offset + size)]
    torch.testing.assert_close(ours, torch.tensor(pairs, dtype=torch.float64), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("offset", "size"), [(0, 1), (1, 1), (1, 4), (2, 5), ((1 << 18) - 3, 7), (0, (1 << 19) + 3)])
def test_a_part_is_the_same_part_of_the_whole(dtype: torch.dtype, offset: int, size: int) -> None:
    whole = normal_(torch.empty(offset + size, dtype=dtype), key=99)
    assert torch.equal(normal_(torch.empty(size, dtype=dtype), 99, offset), whole[offset:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_grid_has_the_numbers_of_its_elements(dtype: torch.dtype) -> None:
    """More than a block of rows, every third column, planes in another order."""
    whole = normal_(torch.empty(3, 500, 700, dtype=dtype), key=5)
    indices = torch.tensor([2, 0]), torch.arange(1, 499), torch.arange(0, 700, 3)
    ours = normal_on_grid(Grid(indices, (350_000, 700, 1)), 5, dtype)
    assert torch.equal(ours, whole[indices[0]][:, indices[1]][:, :, indices[2]])


@given(key=st.integers(0, 2**64 - 1), pairs=st.integers(0, 2**40))
def test_an_advanced_key_begins_later(key: int, pairs: int) -> None:
    assert torch.equal(normal_(torch.empty(5), advanced(key, pairs)), normal_(torch.empty(5), key, 2 * pairs))


def test_low_precision_is_the_float32_number_rounded() -> None:
    exact = normal_(torch.empty(10_000), key=3)
    for dtype in (torch.float16, torch.bfloat16):
        assert torch.equal(normal_(torch.empty(10_000, dtype=dtype), key=3), exact.to(dtype))


def test_shape_does_not_matter_and_zero_sizes_are_fine() -> None:
    flat = normal_(torch.empty(24), key=1)
    assert torch.equal(normal_(torch.empty(2, 3, 4), key=1), flat.view(2, 3, 4))
    assert torch.equal(normal_(torch.empty(()), key=1), flat[0])
    assert normal_(torch.empty(0, 5), key=1).shape == (0, 5)


def test_strided_tensors_are_refused_and_left_alone() -> None:
    out = torch.zeros(4, 3).t()
    with pytest.raises(ValueError, match=r"contiguous.*strides \(1, 3\)"):
        normal_(out, key=1)
    assert not out.any()


def counter_of(word: int) -> int:
    """The counter that SplitMix64 turns into `word`: its steps undone, last one first."""
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        word ^= (word >> shift) ^ (word >> 2 * shift)
        word = word * pow(factor, -1, 2**64) % 2**64
    return word


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("upper", [0, 1, 2**30, 2**31 - 1])
@pytest.mark.parametrize("lower", [0, 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_extreme_words_give_finite_numbers(dtype: torch.dtype, upper: int, lower: int) -> None:
    """upper = 0 is the farthest tail, 6.66; upper = 2^31 - 1 the centre, where float32 rounds u to 1."""
    word = (upper << 33) | lower
    key = (counter_of(word) - 0x9E3779B97F4A7C15) % 2**64
    assert splitmix64(key, 0) == word
    ours = normal_(torch.empty(2, dtype=dtype), key).double()
    expected = torch.tensor(box_muller(word), dtype=torch.float64)
    centre = 4e-4 if upper == 2**31 - 1 else 2e-6
    torch.testing.assert_close(ours, expected, rtol=0, atol=centre if dtype == torch.float32 else 1e-14)
    assert ours.norm().item() <= math.sqrt(64.0 * math.log(2.0)) * (1.0 + 1e-6)


def test_global_generator_is_neither_read_nor_advanced() -> None:
    before = torch.get_rng_state()
    first = normal_(torch.empty(1000), derive_key(0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(123)
    assert torch.equal(normal_(torch.empty(1000), derive_key(0, 1)), first)


def test_keys_differ_in_every_coordinate() -> None:
    grid = itertools.product(range(3), range(40), range(8), range(40), range(2))
    keys = {derive_key(seed, draw, replica, index, stream) for seed, draw, replica, index, stream in grid}
    assert len(keys) == 3 * 40 * 8 * 40 * 2
    assert all(0 <= key < 2**64 for key in keys)


@given(seed=st.integers(-(2**70), 2**70), draw=st.integers(0, 2**40))
def test_seeds_are_taken_modulo_2_to_the_64(seed: int, draw: int) -> None:
    assert derive_key(seed, draw) == derive_key(seed % 2**64, draw)


def test_derive_key_folds_in_its_coordinates_one_after_the_other() -> None:
    key = 0
    for part in (7, 1, 5, 2, 9):  # seed, stream, draw, replica, index
        key = fold_in(key, part)
    assert key == derive_key(7, 5, replica=2, index=9, stream=1)


def test_neighbouring_keys_change_half_of_the_bits() -> None:
    """Avalanche: over 2,000 neighbours the share of changed bits is 1/2 within 5 standard errors."""
    flips = sum((derive_key(0, draw) ^ derive_key(0, draw + 1)).bit_count() for draw in range(2000))
    assert abs(flips - 64_000) <= 5 * math.sqrt(128_000 / 4)


def test_signed_is_the_inverse_of_taking_a_number_modulo_2_to_the_64() -> None:
    for word in (0, 1, 2**63 - 1, 2**63, 2**64 - 1):
        assert noise.signed(word) % 2**64 == word
        assert -(2**63) <= noise.signed(word) < 2**63
