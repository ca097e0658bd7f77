"""A search finds the lowest point of a known function, replays, and passes over failures."""

import math

import pytest

pytest.importorskip("optuna")

from varlearn.recipes.range_search import RangeSearch, bounds, corners

VALUES = {"optim.lr": ["0.001:10"], "data.batch_size": ["8:64"], "optim.name": ["sgd", "ivon"]}


def loss(words: dict[str, str]) -> float:
    """Lowest at lr 0.1 with IVON."""
    return math.log10(float(words["optim.lr"]) / 0.1) ** 2 + (words["optim.name"] == "sgd")


def searched(trials: int, seed: int = 0) -> list[tuple[float, dict[str, str]]]:
    search, found = RangeSearch(VALUES, seed), []
    for _ in range(trials):
        words = search.propose()
        found.append((loss(words), words))
        search.learn(loss(words))
    return found


def test_it_finds_the_lowest_point_sooner_than_chance() -> None:
    ends = [min(searched(40, seed))[0] for seed in range(5)]
    first = [min(searched(10, seed))[0] for seed in range(5)]  # Optuna begins with 10 at random
    assert max(ends) < 0.05
    assert sum(ends) < 0.5 * sum(first)


def test_the_same_results_give_the_same_proposals() -> None:
    assert searched(15) == searched(15)[:15] == searched(20)[:15]
    assert searched(15) != searched(15, seed=1)


def test_whole_numbers_stay_whole_and_ends_hold() -> None:
    words = [words for _, words in searched(30)]
    assert all(8 <= int(one["data.batch_size"]) <= 64 for one in words)
    assert all(0.001 <= float(one["optim.lr"]) <= 10 for one in words)


def test_a_failed_run_is_passed_over() -> None:
    search = RangeSearch({"optim.lr": ["0.1:0.2"]}, seed=0)
    for result in (None, math.nan, math.inf, 1.0):
        search.propose()
        search.learn(result)
    assert 0.1 <= float(search.propose()["optim.lr"]) <= 0.2


@pytest.mark.parametrize("word", ["2:1", "1:1", "0:inf", "nan:1", "a:b", ":1", "1:"])
def test_a_wrong_range_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=f"the range {word} must have"):
        bounds(word)


def test_a_range_stands_alone() -> None:
    with pytest.raises(ValueError, match="mixes a range with values"):
        corners({"optim.lr": ["0.1:1", "2"]})
