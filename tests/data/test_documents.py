import gzip
import io
import json
import lzma
import sys
import tarfile
from pathlib import Path

import pytest

from tests.data.corpora import SEPARATOR, documents, text_of
from tests.data.files import write
from varlearn.data import documents as reader
from varlearn.data.bpe import BytePairs
from varlearn.data.errors import CorruptDataError, MissingDataError

TEXTS = documents()


def read(*paths: Path, size: int = reader.UNIT) -> list[str]:
    """All documents, put together from their pieces."""
    found, now = list[str](), ""
    for unit in reader.units(reader.source_files(paths), size):
        for text, is_end in reader.pieces(unit):
            now += text
            if is_end:
                found.append(now)
                now = ""
    assert now == ""
    return found


def tar_of(members: dict[str, bytes], form: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=form) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def lines() -> bytes:
    return b"".join(json.dumps({"text": text, "url": "u"}).encode() + b"\n" for text in TEXTS)


TARRED = {f"{number:04d}.txt": text.encode() for number, text in enumerate(TEXTS)}
FORMS = {
    "a.txt": text_of(TEXTS),
    "a.txt.gz": gzip.compress(text_of(TEXTS)),
    "a.txt.xz": lzma.compress(text_of(TEXTS)),
    "a.jsonl": lines(),
    "a.jsonl.gz": gzip.compress(lines()),
    "a.tar": tar_of(TARRED),
    "a.tar.gz": tar_of(TARRED, "w:gz"),
    "subset00_data.xz": tar_of(TARRED, "w:xz"),
    # As OpenWebText is published: archives in an archive.
    "openwebtext.tar.xz": tar_of({"openwebtext/a_data.xz": tar_of(TARRED, "w:xz"), "README": b"no text"}, "w:xz"),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_has_the_same_documents(name: str, tmp_path: Path) -> None:
    assert read(write(tmp_path / name, FORMS[name])) == TEXTS


@pytest.mark.parametrize("size", [300_000, 20_000, 2_000, 300])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_cutting_a_file_into_units_changes_nothing(name: str, size: int, tmp_path: Path) -> None:
    path = write(tmp_path / name, FORMS[name])
    assert len(reader.units([path], size)) == -(-len(FORMS[name]) // size)
    assert read(path, size=size) == TEXTS


def test_cuts_do_not_change_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PIECE", 500)
    path = write(tmp_path / "a.txt", ("\u00a0 \n the  an.\n\n" * 900).encode())
    pairs, texts = BytePairs([(b" ", b"t"), (b"\n", b"\n")]), [piece.text for piece in reader.pieces(reader.Unit(path))]
    assert len(texts) > 5
    assert [token for text in texts for token in pairs.encode(text)] == pairs.encode(path.read_text())
    cut = [piece.text for unit in reader.units([path], 999) for piece in reader.pieces(unit)]
    assert [token for text in cut for token in pairs.encode(text)] == pairs.encode(path.read_text())


@pytest.mark.parametrize("length", [10, 3_000_000])
def test_text_without_a_place_to_cut_stays_whole(length: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"x" * length)
    assert read(path) == ["x" * length]


def test_blank_documents_are_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", f"{SEPARATOR} \n{SEPARATOR}one{SEPARATOR}{SEPARATOR}two\n".encode())
    assert read(path) == ["one", "two\n"]
    assert read(write(tmp_path / "b.txt", b"")) == []


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == TEXTS
    pq.write_table(pa.table({"content": TEXTS}), tmp_path / "b.parquet")
    with pytest.raises(CorruptDataError, match=r"b.parquet has no column text, but content"):
        read(tmp_path / "b.parquet")
    write(tmp_path / "c.parquet", b"PAR1")
    with pytest.raises(CorruptDataError, match=r"c.parquet cannot be read"):
        read(tmp_path / "c.parquet")


def test_a_folder_is_read_in_alphabetical_order(tmp_path: Path) -> None:
    for name, text in (("b/1.txt", "one"), ("a/2.txt", "two"), ("a/notes.pdf", "no")):
        write(tmp_path / name, text.encode())
    assert read(tmp_path) == ["two", "one"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good \xff", r"a.txt must be text in UTF-8"),
        ("a.txt.gz", b"no gzip", r"a.txt.gz cannot be unpacked"),
        ("a.txt.gz", gzip.compress(b"x" * 9_999, mtime=0)[:-9], r"a.txt.gz cannot be unpacked"),
        ("a.txt.xz", lzma.compress(b"x" * 9_999)[:-9], r"a.txt.xz cannot be unpacked"),
        ("a.tar", b"no archive", r"a.tar cannot be unpacked"),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"txt": 1}\n',
            r"line '\{\"txt\": 1\}\\n', which is no JSON object with a key text",
        ),
        ("a.jsonl", b"[1]\n", "no JSON object"),
        ("a.jsonl", b'{"text": 3}\n', "a text of type int, which must be a string"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"a.jsonl must be text in UTF-8"),
    ],
)
def test_damage_is_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match=message):
        read(write(tmp_path / name, content))


def test_wrong_sources(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="nowhere does not exist; give the files of the corpus"):
        reader.source_files([tmp_path / "nowhere"])
    with pytest.raises(MissingDataError, match="has no file that ends in .txt"):
        reader.source_files([tmp_path])
    with pytest.raises(ValueError, match="a.pdf must end in .txt"):
        reader.source_files([write(tmp_path / "a.pdf", b"x")])


def test_no_file_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest piece of text in memory is a few pieces, whatever the file's size."""
    monkeypatch.setattr(reader, "PIECE", 10_000)
    path = write(tmp_path / "a.txt", b"one two three\n" * 100_000)
    sizes = [sys.getsizeof(piece.text) for piece in reader.pieces(reader.Unit(path))]
    assert len(sizes) > 50
    assert max(sizes) < 40_000
