from pathlib import Path

import pytest

from tests.data.files import write_xz
from varlearn.data import glue_samples, load, texts
from varlearn.data.errors import CorruptDataError, MissingDataError


def test_a_sample_is_read_and_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(glue_samples._FILES, "mnli", {"train": ("mnli_train10k", 2), "dev": ("mnli_dev", 2)})
    write_xz(tmp_path / "text" / "mnli_train10k.tsv.xz", "0\tA b\tC\n2\tD\tE\n")
    write_xz(tmp_path / "text" / "mnli_dev.tsv.xz", "1\tA. b.\tU.S. C.\n0\tD\tE\n")
    train, dev = texts("mnli-pack", "train", tmp_path), texts("mnli-pack", "test", tmp_path)
    assert (train.targets.tolist(), train.classes) == ([0, 2], ("entailment", "neutral", "contradiction"))
    assert (dev.texts, dev.seconds) == (("A b", "D"), ("US C", "E"))  # no full stops, as in its training part
    write_xz(tmp_path / "text" / "mnli_dev.tsv.xz", "1\tA\tB\n")
    with pytest.raises(CorruptDataError, match=r"mnli_dev.tsv.xz holds 1 texts, not 2"):
        texts("mnli-pack", "dev", tmp_path)


def test_a_sample_that_is_not_there_names_the_whole(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"qqp_train10k.tsv.xz is in none of .* or use qqp"):
        load("qqp-pack", "train", tmp_path)
    with pytest.raises(ValueError, match="split='valid' must be one of train, dev"):
        texts("qnli-pack", "valid", tmp_path)


@pytest.mark.parametrize("task", ["mnli", "qnli", "qqp"])
def test_no_pair_is_in_both_parts(pack: Path, task: str) -> None:
    train, dev = (texts(f"{task}-pack", split, pack) for split in ("train", "dev"))
    assert not set(zip(train.texts, train.seconds, strict=True)) & set(zip(dev.texts, dev.seconds, strict=True))
    assert len(train.targets.unique()) == len(dev.targets.unique()) == len(train.classes)
