"""The campaign counts, continues after an interruption, and says by its exit code whether a promise was broken."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from soak import page, results, run
from soak.part import Outcome, Part, chance
from soak.parts import PARTS


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """Ten cases at most; case 7 breaks the promise."""
    for number in numbers[: max(0, 10 - numbers.start)]:
        yield Outcome("odd" if number % 2 else "even", number != 7, f"number {number}", {"size": float(number)})


PART = Part("example", "Seven holds", "numbers", short=5, full=10, cases=cases)


@pytest.fixture(autouse=True)
def one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(PARTS):
        monkeypatch.delitem(PARTS, name)
    monkeypatch.setitem(PARTS, "example", PART)


def command(folder: Path, *arguments: str) -> int:
    return run.main(["--only", "example", "--out", str(folder), *arguments])


def test_the_short_campaign_keeps_its_promise_and_the_full_one_does_not(tmp_path: Path) -> None:
    assert command(tmp_path / "short") == 0
    assert command(tmp_path / "full", "--full") == 1
    found = results.read(tmp_path / "full", "example")
    assert found is not None
    assert (found["done"], found["broken"], found["finished"]) == (10, 1, True)
    assert found["kinds"] == {"even": {"done": 5, "broken": 0}, "odd": {"done": 5, "broken": 1}}
    assert found["largest"] == {"size": 9.0}
    assert found["details"] == [{"number": 7, "kind": "odd", "detail": "number 7"}]


def test_a_share_below_one_allows_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTS, "example", replace(PART, share=0.9))
    assert command(tmp_path, "--full") == 0
    monkeypatch.setitem(PARTS, "example", replace(PART, share=0.91))
    assert command(tmp_path, "--full") == 1


def test_an_interrupted_part_continues_with_the_cases_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def interrupted(numbers: range, seed: int) -> Iterator[Outcome]:
        for number, outcome in zip(numbers, cases(numbers, seed), strict=False):
            if number == 4 and not seen:
                seen.append(number)
                raise KeyboardInterrupt
            yield outcome

    command(tmp_path / "straight", "--full")
    monkeypatch.setitem(PARTS, "example", replace(PART, cases=interrupted))
    assert command(tmp_path / "stopped", "--full") == 130
    half = results.read(tmp_path / "stopped", "example")
    assert half is not None
    assert (half["done"], half["finished"]) == (4, False)
    assert command(tmp_path / "stopped", "--full") == 1
    documents = [results.read(tmp_path / name, "example") for name in ("straight", "stopped")]
    for document in documents:
        assert document is not None
        del document["seconds"], document["environment"]
    assert documents[0] == documents[1]


def test_more_cases_are_added_to_those_done(tmp_path: Path) -> None:
    assert command(tmp_path, "--count", "3") == 0
    assert command(tmp_path, "--count", "6") == 0
    found = results.read(tmp_path, "example")
    assert found is not None
    assert (found["done"], found["wanted"]) == (6, 6)


def test_a_part_that_raises_is_a_failure_and_keeps_its_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(numbers: range, seed: int) -> Iterator[Outcome]:
        yield Outcome("even")
        raise RuntimeError("no disk")

    monkeypatch.setitem(PARTS, "example", replace(PART, cases=failing))
    assert command(tmp_path) == 1
    assert "no disk" in capsys.readouterr().err
    found = results.read(tmp_path, "example")
    assert found is not None
    assert (found["done"], found["finished"]) == (1, False)


def test_counts_of_another_seed_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command(tmp_path, "--seed", "1")
    assert command(tmp_path, "--seed", "2") == 1
    assert "has seed 1, not 2; remove it or give --out" in capsys.readouterr().err


def test_a_foreign_document_is_refused(tmp_path: Path) -> None:
    (tmp_path / "example.json").write_text(json.dumps({"format": 2}))
    with pytest.raises(ValueError, match="remove it to begin again"):
        results.read(tmp_path, "example")


def test_the_random_numbers_of_a_case_depend_on_seed_and_number() -> None:
    drawn = [chance(seed, number).random() for seed in range(3) for number in range(100)]
    assert len(set(drawn)) == 300


def test_the_table_shows_what_was_reached(tmp_path: Path) -> None:
    around = "before\n<!-- soak -->\nearlier\n<!-- /soak -->\nafter\n"
    assert "| Seven holds | not run | 10 | – |" in page.fill(around, tmp_path)
    command(tmp_path, "--count", "6")
    filled = page.fill(around, tmp_path)
    assert "| Seven holds | 6 numbers | 10 | 0 | 5 size | `python -m soak.run --only example --count 6 " in filled
    assert filled.startswith("before\n<!-- soak -->\n| promise |")
    assert filled.endswith("<!-- /soak -->\nafter\n")
    assert "earlier" not in filled


@pytest.mark.parametrize("arguments", [["--count", "0"], ["--only", "exampel"]])
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(arguments)


def test_each_part_has_half_of_the_time_that_is_left_and_the_mutants_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]

    def minute(numbers: range, seed: int) -> Iterator[Outcome]:
        for _ in numbers:
            clock[0] += 60.0
            yield Outcome("minute")

    monkeypatch.setattr(run.time, "monotonic", lambda: clock[0])
    monkeypatch.delitem(PARTS, "example")
    for name in ("one", "two", "mutants"):
        monkeypatch.setitem(PARTS, name, replace(PART, name=name, short=100, cases=minute))
    assert run.main(["--out", str(tmp_path)]) == 0
    found = {name: results.read(tmp_path, name) for name in PARTS}
    done = {name: document["done"] for name, document in found.items() if document is not None}
    assert done == {"mutants": 15, "one": 7, "two": 7}  # of 30 minutes less two for a last case
    assert clock[0] <= 30 * 60
    assert not any(document["finished"] for document in found.values() if document is not None)
    assert capsys.readouterr().out.count("its time is over; the same command continues") == 3
    assert run.main(["--out", str(tmp_path), "--only", "one"]) == 0
    continued = results.read(tmp_path, "one")
    assert continued is not None
    assert continued["done"] == 7 + 29
