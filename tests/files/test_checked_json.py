"""JSON with a checksum: every flipped bit is noticed, files without one are read as before."""

import json
from pathlib import Path
from typing import Any

import pytest

from varlearn.files.checked_json import json_line, read_json, read_json_lines, write_json
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


def test_every_flipped_bit_of_a_document_is_noticed(path: Path) -> None:
    write_json(path, DOCUMENT)
    assert read_json(path) == DOCUMENT
    for damaged in flips(path.read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match="x.json is damaged"):
            read_json(path)


def test_every_flipped_bit_of_a_line_costs_that_line_alone(path: Path) -> None:
    lines = [json_line(record).encode() for record in RECORDS]
    path.write_bytes(b"".join(lines))
    assert read_json_lines(path) == (RECORDS, [])
    for damaged in flips(lines[1]):
        path.write_bytes(lines[0] + damaged + lines[2])
        found = read_json_lines(path)
        assert found.damaged
        if damaged.endswith(b"\n"):  # otherwise two lines have become one
            expected = RECORDS[:1] + RECORDS[2:]
            assert found.records == expected


@pytest.mark.parametrize("cut", range(1, len(json_line(RECORDS[0]))))
def test_half_a_line_at_the_end_is_no_damage(cut: int, path: Path) -> None:
    line = json_line(RECORDS[0])
    path.write_text(line + line[:cut])
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


def test_equal_values_are_equal_files(path: Path) -> None:
    write_json(path, DOCUMENT)
    first = path.read_bytes()
    write_json(path, dict(reversed(DOCUMENT.items())))
    assert path.read_bytes() == first
