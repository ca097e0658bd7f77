import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.corpora import MERGES, documents, merges, text_of
from tests.data.files import write
from varlearn.data import checksum, corpus_preparation, load
from varlearn.data import documents as reader
from varlearn.data.bpe import BytePairs
from varlearn.data.corpus_preparation import prepare_corpus
from varlearn.data.errors import CorruptDataError, MissingDataError
from varlearn.files.atomic import WriteError
from varlearn.files.locking import BusyError, locked

__all__ = ["merges"]
TEXTS = documents(300)
PAIRS = BytePairs(MERGES)
SPLITS = ("train", "test")


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some twenty units; processes of their own get them as jobs."""
    units = reader.units
    monkeypatch.setattr(reader, "units", lambda files: units(files, 10_000))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus" / "a.txt", text_of(TEXTS))


def tokens(folder: Path, split: str) -> list[int]:
    return np.fromfile(folder / f"{split}.bin", dtype="<u2").tolist()


def files(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


@pytest.mark.usefixtures("merges")
def test_files_and_report(corpus: Path, tmp_path: Path) -> None:
    made = prepare_corpus([corpus], tmp_path / "out", processes=1, held_out=0.2)
    expected = [[*PAIRS.encode(text), PAIRS.end_of_text] for text in TEXTS]
    found = [tokens(made.folder, split) for split in SPLITS]
    assert sorted(found[0] + found[1]) == sorted(token for one in expected for token in one)
    assert 0.1 < found[1].count(PAIRS.end_of_text) / len(TEXTS) < 0.3
    assert made.documents == len(TEXTS)
    assert [made.tokens[split] for split in SPLITS] == list(map(len, found))
    assert made.new_tokens == sum(map(len, found))
    assert files(made.folder) == {"train.bin", "test.bin", "prepared.json"}
    facts = json.loads((made.folder / "prepared.json").read_text())
    assert facts["sha256"] == {split: checksum.of(made.folder / f"{split}.bin", "sha256") for split in SPLITS}


@pytest.mark.usefixtures("merges")
def test_the_order_is_that_of_the_corpus(corpus: Path, tmp_path: Path) -> None:
    made = prepare_corpus([corpus], tmp_path / "out", processes=1, held_out=0.1)
    ends = np.flatnonzero(np.array(tokens(made.folder, "test")) == PAIRS.end_of_text) + 1
    held_out = {tuple(part) for part in np.split(tokens(made.folder, "test"), ends)}
    every = [(*PAIRS.encode(text), PAIRS.end_of_text) for text in TEXTS]
    assert tokens(made.folder, "train") == [token for one in every if one not in held_out for token in one]
    assert tokens(made.folder, "test") == [token for one in every if one in held_out for token in one]


@pytest.mark.usefixtures("merges")
def test_equal_documents_are_in_one_split(tmp_path: Path) -> None:
    text = write(tmp_path / "a.txt", text_of(TEXTS + TEXTS))
    made = prepare_corpus([text], tmp_path / "out", processes=1, held_out=0.3)
    ends = [np.array(tokens(made.folder, split)) == PAIRS.end_of_text for split in SPLITS]
    parts = [
        {tuple(part) for part in np.split(tokens(made.folder, split), np.flatnonzero(end) + 1)}
        for split, end in zip(SPLITS, ends, strict=True)
    ]
    assert parts[0] & parts[1] <= {()}


@pytest.mark.usefixtures("merges")
def test_the_number_of_processes_changes_nothing(corpus: Path, tmp_path: Path) -> None:
    alone, told = prepare_corpus([corpus], tmp_path / "one", processes=1, held_out=0.1), []
    two = prepare_corpus(
        [corpus], tmp_path / "two", processes=2, held_out=0.1, progress=lambda *numbers: told.append(numbers)
    )
    for split in SPLITS:
        assert tokens(alone.folder, split) == tokens(two.folder, split)
    assert told[-1] == (corpus.stat().st_size, corpus.stat().st_size, two.new_tokens)
    assert 0 < two.memory < 2 << 30


@pytest.mark.usefixtures("merges")
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("after", [0, 1, 7])
def test_interrupted_anywhere_it_goes_on(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, after: int
) -> None:
    whole, out, calls = prepare_corpus([corpus], tmp_path / "whole", processes=1, held_out=0.1), tmp_path / "out", []
    fsync = os.fsync

    def failing(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 3 * after:  # two files and the progress of each unit
            raise error
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else WriteError):
            prepare_corpus([corpus], out, processes=1, held_out=0.1)
    assert not (out / "prepared.json").exists()
    made = prepare_corpus([corpus], out, processes=1, held_out=0.1)
    for split in SPLITS:
        assert tokens(whole.folder, split) == tokens(out, split)
    assert made.tokens == whole.tokens
    assert (made.new_tokens < sum(made.tokens.values())) == (after > 0)


@pytest.mark.usefixtures("merges")
def test_interrupted_while_names_change(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def failing(source: Path, target: Path) -> None:
        if Path(target).name == "test.bin":
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing)
        with pytest.raises(KeyboardInterrupt):
            prepare_corpus([corpus], tmp_path / "out", processes=1, held_out=0.1)
    assert prepare_corpus([corpus], tmp_path / "out", processes=1, held_out=0.1).new_tokens == 0
    assert files(tmp_path / "out") == {"train.bin", "test.bin", "prepared.json"}


@pytest.mark.usefixtures("merges")
def test_a_finished_corpus_is_compared_with_its_checksums(corpus: Path, tmp_path: Path) -> None:
    prepare_corpus([corpus], tmp_path / "out", processes=1, held_out=0.1)
    assert prepare_corpus([corpus], tmp_path / "out", processes=1, held_out=0.1).new_tokens == 0
    with pytest.raises(ValueError, match="made of other files or settings; give another --out"):
        prepare_corpus([corpus], tmp_path / "out", held_out=0.2)
    content = bytearray((tmp_path / "out" / "train.bin").read_bytes())
    content[100] ^= 1
    write(tmp_path / "out" / "train.bin", bytes(content))
    with pytest.raises(CorruptDataError, match=r"train.bin .* it is damaged or another file"):
        prepare_corpus([corpus], tmp_path / "out", held_out=0.1)


@pytest.mark.usefixtures("merges")
def test_other_files_are_not_mixed_in(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*numbers: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_corpus([corpus], tmp_path / "out", processes=1, progress=stop)
    with pytest.raises(ValueError, match="begun with other files or settings"):
        prepare_corpus([write(tmp_path / "b.txt", b"other")], tmp_path / "out")
    (tmp_path / "out" / "train.bin.partial").unlink()
    with pytest.raises(CorruptDataError, match="has lost a part of what was written"):
        prepare_corpus([corpus], tmp_path / "out")
    write(tmp_path / "taken" / "train.bin", b"mine")
    with pytest.raises(ValueError, match=r"has a train.bin already, which is not of this command"):
        prepare_corpus([corpus], tmp_path / "taken")
    assert (tmp_path / "taken" / "train.bin").read_bytes() == b"mine"


@pytest.mark.usefixtures("merges")
@pytest.mark.parametrize(
    ("settings", "message"),
    [({"held_out": 0.0}, "held_out=0.0 must be a share between 0 and 1"), ({"processes": 0}, "processes=0 must be at")],
)
def test_wrong_settings_write_nothing(corpus: Path, tmp_path: Path, settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare_corpus([corpus], tmp_path / "out", **settings)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("merges")
def test_damage_in_a_process_of_its_own_is_named(corpus: Path, tmp_path: Path) -> None:
    write(corpus.parent / "b.txt", b"good \xff")
    with pytest.raises(CorruptDataError, match=r"b.txt must be text in UTF-8"):
        prepare_corpus([corpus.parent], tmp_path / "out", processes=2)


@pytest.mark.usefixtures("merges")
def test_a_split_without_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the test split has no token: 1 documents are too few for held_out=1e-09"):
        prepare_corpus([write(tmp_path / "a.txt", b"one")], tmp_path / "out", processes=1, held_out=1e-9)


def test_merges_that_are_nowhere(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARLEARN_CACHE", str(tmp_path / "empty"))
    with pytest.raises(MissingDataError, match=r"vocab.bpe"):
        prepare_corpus([corpus], tmp_path / "out", root=tmp_path / "empty")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("merges")
def test_training_reads_what_was_prepared(corpus: Path) -> None:
    folder = prepare_corpus([corpus], processes=1, held_out=0.1).folder
    for split in SPLITS:
        examples = load("openwebtext", split)
        assert isinstance(examples.inputs, torch.Tensor)
        assert examples.inputs[:].tolist() == tokens(folder, split)
        assert (examples.kind, examples.vocab) == ("tokens", 50_257)


def test_a_document_is_held_out_by_its_checksum() -> None:
    share = sum(corpus_preparation._is_held_out(f"document {number}", 0.1) for number in range(20_000)) / 20_000
    assert abs(share - 0.1) < 0.01


@pytest.mark.usefixtures("merges")
def test_two_processes_do_not_prepare_one_folder(corpus: Path, tmp_path: Path) -> None:
    """Both would append to the same files, and the checksum would be that of the mixture."""
    pytest.importorskip("fcntl")
    refused: list[str] = []

    def also(*numbers: int) -> None:
        before = files(tmp_path / "out")
        with pytest.raises(BusyError, match="another process is preparing .*out; wait for it") as caught:
            prepare_corpus([corpus], tmp_path / "out", processes=1, held_out=0.2)
        refused.append(str(caught.value))
        assert files(tmp_path / "out") == before

    prepare_corpus([corpus], tmp_path / "out", processes=1, held_out=0.2, progress=also)
    assert len(refused) > 10
    prepare_corpus([corpus], tmp_path / "alone", processes=1, held_out=0.2)
    for split in SPLITS:
        assert tokens(tmp_path / "out", split) == tokens(tmp_path / "alone", split)
    with locked(tmp_path / "out" / ".lock", "busy"):  # what is complete can be checked by everybody
        assert prepare_corpus([corpus], tmp_path / "out", processes=1, held_out=0.2).new_tokens == 0


@pytest.mark.usefixtures("merges")
def test_what_a_killed_process_left_is_removed(corpus: Path, tmp_path: Path) -> None:
    write(tmp_path / "out" / ".progress.json.0123456789abcdef.tmp", b"half")
    write(tmp_path / "out" / "parts" / "3.train", b"half")
    prepare_corpus([corpus], tmp_path / "out", processes=1, held_out=0.2)
    assert files(tmp_path / "out") == {"train.bin", "test.bin", "prepared.json"}
