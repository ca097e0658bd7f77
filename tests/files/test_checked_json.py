"""JSON with a checksum: every flipped bit is noticed, files without one are read as before."""

import json
from pathlib import Path
from typing import Any

import pytest

from varlearn.files.checked_json import json_line, last_line, read_json, read_json_lines, write_json
from varlearn.files.formats import CorruptFileError

DOCUMENT: dict[str, Any] = {"mean": {"nll": 0.51, "ece": 1e-3, "note": "\u00e4"}, "list": [1, 2], "b": True}
RECORDS: list[dict[str, Any]] = [{"step": step, "loss": 0.5 / step, "eval": {"nll": "inf"}} for step in (1, 2, 3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.json"


def flips(data: bytes) -> list[bytes]:
    """The data with each of its bits flipped in turn."""
    places = [(place, bit) for place in range(len(data)) for bit in range(8)]
    return [data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :] for place, bit in places]


def lines_of(records: list[dict[str, Any]]) -> list[bytes]:
    lines = [""]
    for record in records:
        lines.append(json_line(record, lines[-1]))
    return [line.encode() for line in lines[1:]]


def test_every_flipped_bit_of_a_document_is_noticed(path: Path) -> None:
    write_json(path, DOCUMENT)
    assert read_json(path) == DOCUMENT
    for damaged in flips(path.read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match="x.json is damaged"):
            read_json(path)


def test_every_flipped_bit_of_a_line_costs_that_line_alone(path: Path) -> None:
    lines = lines_of(RECORDS)
    path.write_bytes(b"".join(lines))
    assert read_json_lines(path) == (RECORDS, [])
    for damaged in flips(lines[1]):
        path.write_bytes(lines[0] + damaged + lines[2])
        found = read_json_lines(path)
        assert found.damaged
        if damaged.endswith(b"\n"):  # otherwise two lines have become one
            expected = RECORDS[:1] + RECORDS[2:]
            assert found.records == expected


@pytest.mark.parametrize(
    ("order", "left", "damaged"),
    [
        ([0, 1, 3, 4], [0, 1, 4], [3]),  # one is missing
        ([1, 2, 3, 4], [2, 3, 4], [1]),  # the first one
        ([0, 1, 1, 2, 3, 4], [0, 1, 2, 3, 4], [3]),  # one is there twice
        ([0, 2, 1, 3, 4], [0, 4], [2, 3, 4]),  # two have changed places
        ([0, 1, 7, 8, 9], [0, 1, 8, 9], [3]),  # the end of another log
    ],
)
def test_a_line_that_is_not_in_its_place_is_noticed(
    order: list[int], left: list[int], damaged: list[int], path: Path
) -> None:
    records = [{"step": step} for step in (1, 2, 3, 4, 5)]
    others = [{"step": step, "loss": 0.5} for step in (1, 2, 3, 4, 5)]
    lines, both = lines_of(records) + lines_of(others), records + others
    path.write_bytes(b"".join(lines[place] for place in order))
    assert read_json_lines(path) == ([both[place] for place in left], damaged)


@pytest.mark.parametrize(
    "tail", [b"\0" * 20, b"garbage", b'{"step": \xc3\xa4', b"?" + json_line({"step": 1}).encode()[:-1]]
)
def test_an_end_that_no_writer_leaves_is_damage(tail: bytes, path: Path) -> None:
    path.write_bytes(json_line({"step": 1}).encode() + tail)
    assert read_json_lines(path) == ([{"step": 1}], [2])


@pytest.mark.parametrize("size", [0, 1, 10, 65_535, 65_536, 65_537, 300_000])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_last_line_is_found_from_the_end(size: int, end: bytes, path: Path) -> None:
    line = b"x" * size + end
    for before in (b"", b"one\n", b"\n\n", b"y" * 70_000 + b"\n"):
        path.write_bytes(before + line)
        assert last_line(path) == (line or (before and before.splitlines(keepends=True)[-1]))


@pytest.mark.parametrize("cut", range(1, len(json_line(RECORDS[0]))))
def test_half_a_line_at_the_end_is_no_damage(cut: int, path: Path) -> None:
    line = json_line(RECORDS[0])
    path.write_text(line + json_line(RECORDS[0], line)[:cut])
    records, damaged = read_json_lines(path)
    assert damaged == []
    assert records[0] == RECORDS[0]
    assert len(records) == (2 if cut == len(line) - 1 else 1)


def test_files_without_a_checksum_are_read(path: Path) -> None:
    path.write_text(json.dumps(DOCUMENT))
    assert read_json(path) == DOCUMENT
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    assert read_json_lines(path) == (RECORDS, [])


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"sha256": null}', '{"sha256": "0"}'])
def test_other_texts_are_refused(text: str, path: Path) -> None:
    path.write_text(text)
    with pytest.raises(CorruptFileError, match="x.json is damaged"):
        read_json(path)


def test_the_last_line_can_be_replaced_by_a_brace(path: Path) -> None:
    """What the message says to do after a change by hand."""
    write_json(path, DOCUMENT)
    lines = path.read_text().replace("0.51", "0.52").splitlines()
    path.write_text("\n".join(lines))
    with pytest.raises(CorruptFileError, match='replace its last line by "}" if you changed it on purpose'):
        read_json(path)
    path.write_text("\n".join([*lines[:-1], "}"]))
    assert read_json(path)["mean"]["nll"] == 0.52


def test_no_part_of_a_document_passes_for_one_without_a_checksum(path: Path) -> None:
    write_json(path, DOCUMENT)
    lines = path.read_bytes().splitlines(keepends=True)
    for first in range(len(lines)):
        for last in range(first + 1, len(lines) + 1):
            path.write_bytes(b"".join(lines[:first] + lines[last:]))
            with pytest.raises(CorruptFileError):
                read_json(path)


def test_an_empty_document(path: Path) -> None:
    write_json(path, {})
    assert read_json(path) == {}


def test_equal_values_are_equal_files(path: Path) -> None:
    write_json(path, DOCUMENT)
    first = path.read_bytes()
    write_json(path, dict(reversed(DOCUMENT.items())))
    assert path.read_bytes() == first


def test_records_share_their_keys(path: Path) -> None:
    """Keys of their own would be a third of the memory of a long log."""
    lines = [json_line(RECORDS[0])]
    lines.append(json_line(RECORDS[1], lines[0]))
    path.write_text("".join(lines))
    first, second = read_json_lines(path).records
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert next(iter(first["eval"])) is next(iter(second["eval"]))
