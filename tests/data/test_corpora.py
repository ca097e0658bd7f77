import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.data.files import md5, write, write_xz, write_zip
from varlearn.data import corpora
from varlearn.data.errors import CorruptDataError, DownloadError
from varlearn.data.loading import load


def test_tinyshakespeare_as_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write(tmp_path / "tinyshakespeare" / "input.txt", b"0123456789abcdefghij")
    monkeypatch.setattr(corpora, "_SHAKESPEARE", replace(corpora._SHAKESPEARE, checksum=md5(path)))
    assert corpora.tinyshakespeare("train", tmp_path) == "0123456789abcdefgh"
    assert corpora.tinyshakespeare("test", tmp_path) == "ij"


def test_brown_as_published(tmp_path: Path) -> None:
    letters = "abcdefghijklmnopqr"
    members = {
        f"brown/c{letters[k // 99]}{k % 99 + 1:02d}": f"\n\n\tThe/at doc/nn {k}/cd 1/2/cd ./.\nEnd/vb\n".encode()
        for k in range(500)
    }
    write_zip(tmp_path / "brown.zip", members | {"brown/README": b"x", "brown/cats.txt": b"y"})
    train, test = corpora.brown("train", tmp_path), corpora.brown("test", tmp_path)
    assert (train.count("\n\n") + 1, test.count("\n\n") + 1) == (450, 50)
    assert train.startswith("The doc 0 1/2 .\nEnd\n\nThe doc 1 1/2 .")
    assert test.startswith("The doc 9 1/2 .\nEnd\n\nThe doc 19")
    write_zip(tmp_path / "brown.zip", dict(list(members.items())[1:]))
    with pytest.raises(CorruptDataError, match=r"brown.zip holds 499 documents, not 500"):
        corpora.brown("train", tmp_path)
    write(tmp_path / "brown.zip", b"no zip")
    with pytest.raises(CorruptDataError, match="no readable zip"):
        corpora.brown("train", tmp_path)


def test_wikitext2_as_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "wikitext-2-v1.zip", {"wikitext-2/wiki.train.tokens": b" = A = \n <unk> b \n"})
    monkeypatch.setattr(corpora, "_WIKITEXT2", replace(corpora._WIKITEXT2, checksum=md5(path)))
    assert corpora.wikitext2("train", tmp_path) == " = A = \n <unk> b \n"
    with pytest.raises(CorruptDataError, match=r"no readable wikitext-2/wiki.test.tokens"):
        corpora.wikitext2("test", tmp_path)


def test_streams(tmp_path: Path) -> None:
    write_xz(tmp_path / "text" / "wikitext2_train.txt.xz", "a b a\n")
    write_xz(tmp_path / "text" / "wikitext2_test.txt.xz", "a é\n")
    as_bytes = load("wikitext2", "test", tmp_path)
    assert (as_bytes.inputs[:].tolist(), as_bytes.vocab, as_bytes.kind) == ([97, 32, 195, 169, 10], 256, "tokens")
    assert as_bytes.inputs[:].dtype == torch.uint8
    words = load("wikitext2", "test", tmp_path, tokens="words", vocab=3)
    assert (words.inputs[:].tolist(), words.vocab) == ([1, 0, 2], 3)


def test_the_real_texts(pack: Path) -> None:
    whole = corpora.tinyshakespeare("train", pack) + corpora.tinyshakespeare("test", pack)
    assert len(whole) == 1_115_394
    assert hashlib.sha256(whole.encode()).hexdigest() == corpora._SHAKESPEARE.checksum
    train, test = corpora.brown("train", pack), corpora.brown("test", pack)
    assert 1.15e6 < len((train + test).split()) < 1.17e6
    assert len(corpora.wikitext2("valid", pack)) > 1.1e6
    with pytest.raises(DownloadError, match=r"wikitext-2-v1.zip could not be downloaded"):
        corpora.wikitext2("train", pack)
