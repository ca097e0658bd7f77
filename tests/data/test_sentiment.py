from pathlib import Path

import pytest

from tests.data.files import write_tar, write_xz, write_zip
from varlearn.data import load, sentiment


def test_sst5_as_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trees = b"(3 (2 It) (4 (4 works) (2 .)))\n(0 (2 No) (2 !))\n"
    write_zip(tmp_path / "trainDevTestTrees_PTB.zip", {"trees/dev.txt": trees})
    monkeypatch.setattr(sentiment, "_SST5_COUNTS", {"dev": 2})
    dev = sentiment.sst5("dev", tmp_path)
    assert dev.texts == ("It works .", "No !")
    assert dev.targets.tolist() == [3, 0]


def test_rotten_tomatoes_is_cut_in_the_order_of_the_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    members = {
        "rt-polaritydata/rt-polarity.pos": b"good one\nnice \xe9clair\ngreat\nsuperb\n",
        "rt-polaritydata/rt-polarity.neg": b"bad\nawful\nboring\ndull\n",
    }
    write_tar(tmp_path / "rt-polaritydata.tar.gz", members)
    monkeypatch.setattr(sentiment, "_SENTENCES", 4)
    monkeypatch.setattr(sentiment, "_TRAINING", 2)
    monkeypatch.setattr(sentiment, "_HELD_OUT", 1)
    splits = {split: sentiment.rotten_tomatoes(split, tmp_path) for split in ("train", "validation", "test")}
    assert splits["train"].texts == ("good one", "nice éclair", "bad", "awful")
    assert splits["train"].targets.tolist() == [1, 1, 0, 0]
    assert splits["validation"].texts == ("great", "boring")
    assert splits["test"].texts == ("superb", "dull")
    write_xz(tmp_path / "text" / "rotten_tomatoes.tsv.xz", "0\ta\n0\tb\n0\tc\n0\td\n1\te\n1\tf\n1\tg\n1\th\n")
    assert sentiment.rotten_tomatoes("train", tmp_path).texts == ("e", "f", "a", "b")
    assert load("rotten_tomatoes", "validation", tmp_path).targets.tolist() == [1, 0]
    with pytest.raises(ValueError, match="split='validation' of imdb needs validation="):
        load("imdb", "validation", tmp_path)
