"""Numbers of passes do not repeat, and a resumed run goes on with them."""

from varlearn.methods.pass_count import PassCount


def test_numbers_do_not_repeat_and_depend_on_step_and_place_alone() -> None:
    first, resumed = PassCount(), PassCount()
    numbers = [first.next(step) for step in (0, 0, 1, 1, 1, 2)]
    assert len(set(numbers)) == 6
    assert [resumed.next(step) for step in (1, 1, 1, 2)] == numbers[2:]
