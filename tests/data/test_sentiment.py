from pathlib import Path

import pytest
import torch

from tests.data.files import write_tar, write_zip
from varlearn.data import sentiment


def test_sst5_as_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trees = b"(3 (2 It) (4 (4 works) (2 .)))\n(0 (2 No) (2 !))\n"
    write_zip(tmp_path / "trainDevTestTrees_PTB.zip", {"trees/dev.txt": trees})
    monkeypatch.setattr(sentiment, "_SST5_COUNTS", {"dev": 2})
    dev = sentiment.sst5("dev", tmp_path)
    assert dev.texts == ("It works .", "No !")
    assert dev.targets.tolist() == [3, 0]


def test_rotten_tomatoes_as_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    members = {
        "rt-polaritydata/rt-polarity.pos": b"good one\nnice \xe9clair\ngreat\n",
        "rt-polaritydata/rt-polarity.neg": b"bad\nawful\nboring\n",
    }
    write_tar(tmp_path / "rt-polaritydata.tar.gz", members)
    monkeypatch.setattr(sentiment, "_SENTENCES", 6)
    monkeypatch.setattr(sentiment, "_HELD_OUT", 2)
    train, test = sentiment.rotten_tomatoes("train", tmp_path), sentiment.rotten_tomatoes("test", tmp_path)
    assert (len(train), len(test)) == (4, 2)
    labels = dict(zip(train.texts + test.texts, torch.cat([train.targets, test.targets]).tolist(), strict=True))
    assert labels == {"good one": 1, "nice éclair": 1, "great": 1, "bad": 0, "awful": 0, "boring": 0}
