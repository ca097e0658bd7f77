import torch
from hypothesis import given
from hypothesis import strategies as st

from varlearn.data.seeds import generator

parts = st.tuples(st.integers(-3, 3), st.sampled_from(["a", "b"]), st.integers(0, 3))


@given(parts, parts)
def test_equal_parts_equal_numbers(one: tuple, other: tuple) -> None:
    same = torch.equal(torch.rand(2, generator=generator(*one)), torch.rand(2, generator=generator(*other)))
    assert same == (one == other)


def test_a_name_is_not_a_number() -> None:
    assert generator(1, "2").initial_seed() != generator(1, 2).initial_seed()


def test_the_numbers_are_the_same_everywhere() -> None:
    """Frozen: another value would change the order of every run's data."""
    assert generator(0, "order", 0).initial_seed() == 2094333682667709378
