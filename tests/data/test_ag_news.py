from pathlib import Path

import pytest

from tests.data.files import md5, write
from varlearn.data import ag_news
from varlearn.data.errors import CorruptDataError, DownloadError, MissingDataError


def test_ag_news_as_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write(tmp_path / "ag_news" / "test.csv", b'"3","A ""big"" title","Text, with\na line"\n"1","World","News"\n')
    monkeypatch.setattr(ag_news, "_COUNTS", {"train": 3, "test": 2})
    monkeypatch.setattr(ag_news, "_MD5", {"train": None, "test": md5(path)})
    test = ag_news.ag_news("test", tmp_path)
    assert test.texts == ('A "big" title . Text, with\na line', "World . News")
    assert [test.classes[k] for k in test.targets.tolist()] == ["Business", "World"]
    write(tmp_path / "ag_news" / "train.csv", path.read_bytes())
    with pytest.raises(CorruptDataError, match=r"train.csv holds 2 texts, not 3"):
        ag_news.ag_news("train", tmp_path)
    write(tmp_path / "ag_news" / "train.csv", b'"1","only two"\n')
    with pytest.raises(CorruptDataError, match=r"train.csv row 1 is not \(class, title, description\)"):
        ag_news.ag_news("train", tmp_path)


def test_the_sample_of_ag_news_is_not_ag_news(pack: Path) -> None:
    with pytest.raises(DownloadError, match=r"train.csv could not be downloaded"):
        ag_news.ag_news("train", pack)
    sample, human = ag_news.ag_news_pack("train", pack), ag_news.ag_news_pack_human("train", pack)
    assert (len(sample), len(ag_news.ag_news("test", pack))) == (10_000, 7_600)
    assert ag_news.ag_news("test", pack).targets.bincount().tolist() == [1900] * 4
    assert sample.texts == human.texts
    assert 0.01 < (sample.targets != human.targets).double().mean().item() < 0.5


def test_no_sample(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"ag_news_train10k.tsv.xz is in none of .*or use ag_news"):
        ag_news.ag_news_pack("train", tmp_path)
