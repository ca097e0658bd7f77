from pathlib import Path

import pytest

from tests.data.files import write_xz
from varlearn.data import download, facts, load, names, options_of, synthetic, texts
from varlearn.data.errors import DownloadError


def test_every_name_has_facts_and_a_twin() -> None:
    assert sorted([*facts.IMAGES, *facts.TEXTS, *facts.CORPORA, *facts.TABLES]) == names()
    for name in names():
        if name != "imagenet":
            assert len(synthetic(name, 2)) == 2


def test_an_unknown_name_gets_a_proposal() -> None:
    with pytest.raises(ValueError, match="'cifar-10' is not a data set; did you mean cifar10?"):
        load("cifar-10", "train")
    with pytest.raises(ValueError, match="'zzz' is not a data set; known are ag_news, "):
        load("zzz", "train")
    with pytest.raises(ValueError, match="'ss2' is not a set of labelled texts; did you mean sst2?"):
        texts("ss2", "train")


def test_options() -> None:
    assert options_of("ag_news") == ("tokens", "vocab", "context", "pretrained")
    assert options_of("uci-yacht") == ("fold",)
    assert options_of("cifar10-corrupted") == ("corruption", "severity", "seed")
    assert options_of("anything.txt") == ("tokens", "vocab")
    with pytest.raises(ValueError, match="tokens is not an option of cifar10; it has none"):
        load("cifar10", "train", tokens="bytes")
    with pytest.raises(ValueError, match="context is not an option of brown; its options are tokens, vocab"):
        load("brown", "train", context=3)


@pytest.mark.parametrize("name", ["cifar100", "svhn", "flowers102", "tinyimagenet", "ag_news"])
def test_a_part_is_offered_and_never_taken_for_the_whole(pack: Path, name: str) -> None:
    with pytest.raises(DownloadError, match=rf"could not be downloaded .*{name}-pack, a part of it"):
        load(name, "train", pack)


def test_a_download_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(url: str, target: Path, expected: str | None) -> Path:
        report = download._progress.get()
        assert report is not None
        report(target.name, 1, 2)
        raise DownloadError("enough")

    monkeypatch.setattr(download, "fetch", fetch)
    seen = []
    with pytest.raises(DownloadError, match="enough"):
        load("cifar100", "train", tmp_path, progress=lambda *piece: seen.append(piece))
    assert seen == [("cifar-100-binary.tar.gz", 1, 2)]
    assert download._progress.get() is None


def test_the_root_may_be_a_string(tmp_path: Path) -> None:
    write_xz(tmp_path / "text" / "wikitext2_test.txt.xz", "abc")
    assert len(load("wikitext2", "test", str(tmp_path))) == 3


def test_the_variable_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_xz(tmp_path / "text" / "wikitext2_test.txt.xz", "abcd")
    monkeypatch.setenv("VARLEARN_DATA", str(tmp_path))
    assert len(load("wikitext2", "test")) == 4


REAL = {
    ("imdb", "test"): (25_000, 2),
    ("sst2", "dev"): (872, 2),
    ("sst5", "test"): (2_210, 5),
    ("rotten_tomatoes", "train"): (8_530, 2),
    ("cola", "train"): (8_551, 2),
    ("cola", "dev_ood"): (516, 2),
    ("rte", "test"): (277, 2),
    ("mrpc", "train"): (3_668, 2),
    ("mrpc", "dev"): (408, 2),
    ("mrpc", "test"): (1_725, 2),
    ("cola", "dev"): (1_043, 2),
    ("rotten_tomatoes", "validation"): (1_066, 2),
    ("rotten_tomatoes", "test"): (1_066, 2),
    ("qnli", "dev"): (5_463, 2),
    ("qnli-pack", "train"): (4_976, 2),
    ("qqp-pack", "train"): (10_000, 2),
    ("qqp-pack", "dev"): (2_000, 2),
    ("mnli", "dev"): (9_815, 3),
    ("mnli-pack", "train"): (9_888, 3),
    ("yelp-standin", "train"): (6_939, 2),
    ("yelp-standin", "test"): (2_000, 2),
    ("yelp_polarity-pack", "train"): (2_000, 2),
    ("amazon-standin", "test"): (5_496, 2),
}


@pytest.mark.parametrize(("name", "split"), REAL)
def test_the_real_texts(pack: Path, name: str, split: str) -> None:
    n, classes = REAL[name, split]
    found = texts(name, split, pack)
    assert len(found) == len(found.targets) == n
    assert len(found.targets.unique()) == len(found.classes) == classes
    assert all(found.texts)
    assert bool(found.seconds) == (name.split("-")[0] in ("rte", "mrpc", "qnli", "qqp", "mnli"))
