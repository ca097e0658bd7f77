"""Ticks and places of axes."""

import math

import pytest

from varlearn.report.axis_scale import Axis, fitted, short


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        (0.0, 1.0, ["0.00", "0.25", "0.50", "0.75", "1.00"]),
        (0.0, 1200.0, ["0", "500", "1,000"]),
        (-2.2, 2.3, ["−2", "0", "2"]),
        (0.103, 0.1061, ["0.103", "0.104", "0.105", "0.106"]),
    ],
)
def test_ticks_are_round_numbers_inside(low: float, high: float, names: list[str]) -> None:
    axis = Axis("x", low, high)
    assert [name for _, name in axis.ticks()] == names
    assert all(axis.holds(value) for value, _ in axis.ticks())


def test_a_logarithmic_axis() -> None:
    axis = Axis("x", 0.01, 100.0, log=True)
    assert axis.place(1.0) == pytest.approx(0.5)
    assert [name for _, name in axis.ticks()] == ["0.01", "0.1", "1", "10", "100"]
    assert not axis.holds(0.0)
    assert not axis.holds(-1.0)
    assert [name for _, name in Axis("x", 1.0, 9.0, log=True).ticks()] == ["1", "2", "5"]


def test_few_ticks_for_small_drawings() -> None:
    named = Axis("samples", 1.0, 64.0, log=True, named=tuple((2.0**k, f"{2**k}") for k in range(7)))
    assert [name for _, name in named.ticks(2)] == ["1", "4", "16", "64"]
    assert len(named.ticks()) == 7
    assert len(Axis("x", 0.0, 1.0).ticks(2)) == 3


def test_an_axis_holds_its_values_and_noise_looks_like_noise() -> None:
    axis = fitted("NLL", [1.0, 1.001, math.nan, math.inf], span=0.1)
    assert axis.holds(1.0)
    assert axis.high - axis.low >= 0.1
    assert fitted("x", [3.0]).holds(3.0)
    assert fitted("x", []).high > fitted("x", []).low
    assert fitted("x", [-1.0, 100.0], log=True).log is False
    assert fitted("step", [5.0, 100.0], low=0.0).low == 0.0


def test_numbers_for_people() -> None:
    assert [short(value, 2) for value in (0.004, 0.0999, 12345.6, float("nan"))] == ["0.004", "0.1", "12,346", "nan"]
