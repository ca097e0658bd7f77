from pathlib import Path

import pytest

from tests.data.files import write_tar, write_xz
from varlearn.data import review_polarity, texts
from varlearn.data.errors import CorruptDataError, DownloadError, MissingDataError


@pytest.mark.parametrize(
    ("shop", "content", "first"),
    [
        ("yelp", b'"1","A ""bad"" place.\\nReally \\""bad\\""."\n"2","Good"\n', 'A "bad" place. Really "bad".'),
        ("amazon", b'"1","Bad","It ""broke"""\n"2","Good","Works"\n', 'Bad It "broke"'),
    ],
)
def test_the_sets_as_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shop: str, content: bytes, first: str
) -> None:
    name = f"{shop}_review_polarity_csv"
    monkeypatch.setitem(review_polarity._COUNTS, shop, {"train": 2, "test": 3})
    write_tar(tmp_path / f"{name}.tgz", {f"{name}/train.csv": content, f"{name}/test.csv": content})
    train = texts(f"{shop}_polarity", "train", tmp_path)
    assert (train.texts[0], train.targets.tolist(), train.classes) == (first, [0, 1], ("negative", "positive"))
    with pytest.raises(CorruptDataError, match="holds 2 texts, not 3"):
        texts(f"{shop}_polarity", "test", tmp_path)
    write_tar(tmp_path / f"{name}.tgz", {f"{name}/train.csv": b'"3","x"\n'})
    with pytest.raises(CorruptDataError, match=r"train.csv row 1 is not a review of class 1 or 2"):
        texts(f"{shop}_polarity", "train", tmp_path)


def test_a_stand_in_has_its_own_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(review_polarity._PREPARED, "yelp-standin", (3, 2, {"train": ("yelp_train", 2)}))
    write_xz(tmp_path / "text" / "yelp_train.tsv.xz", "0\t1\tBad place\n1\t5\tGood place\n")
    assert texts("yelp-standin", "train", tmp_path).texts == ("Bad place", "Good place")
    with pytest.raises(DownloadError, match=r"yelp_review_polarity_csv.tgz could not be downloaded"):
        texts("yelp_polarity", "train", tmp_path)
    with pytest.raises(MissingDataError, match=r"amazon_train.tsv.xz is in none of .* or use amazon_polarity"):
        texts("amazon-standin", "train", tmp_path)
    with pytest.raises(MissingDataError, match=r"yelp_polarity_train2k.tsv.xz .* or use yelp_polarity"):
        texts("yelp_polarity-pack", "train", tmp_path)


@pytest.mark.parametrize("name", ["yelp-standin", "amazon-standin", "yelp_polarity-pack"])
def test_no_review_is_in_both_parts(pack: Path, name: str) -> None:
    train, test = (texts(name, split, pack) for split in ("train", "test"))
    assert not set(train.texts) & set(test.texts)
    assert max(map(len, train.texts)) <= 620  # cut at 600 characters, escapes undone
