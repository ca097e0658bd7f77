"""AG News (Zhang et al., 2015): 120,000 + 7,600 news items of four classes.

Published form: `ag_news/train.csv` and `ag_news/test.csv` (class 1 .. 4, title, description). Prepared form:
`text/ag_news_test.tsv.xz`; and `text/ag_news_train10k.tsv.xz`, a sample of 10,000 with labels by people beside the true
ones, loaded as `ag_news-pack`.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from varlearn.data import prepared, sources
from varlearn.data.errors import CorruptDataError
from varlearn.data.imageset import check_split
from varlearn.data.sources import Published
from varlearn.data.text_sets import Texts, labelled

CLASSES = ("World", "Sports", "Business", "Sci/Tech")
_COUNTS = {"train": 120_000, "test": 7_600}
_URL = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
_MD5 = {"train": "b1a00f826fdfbd249f79597b59e1dc12", "test": "d52ea96a97a2d943681189a97654912d"}


def ag_news(split: str, root: Path | None = None) -> Texts:
    """Title and description, joined by " . "; split is train or test."""
    check_split(split, _COUNTS)
    found = sources.find("text/ag_news_test.tsv.xz", root) if split == "test" else None
    if found is not None:
        return labelled(prepared.rows(found, 3), CLASSES, _COUNTS["test"], found, text=2)
    path = sources.published(Published(f"ag_news/{split}.csv", f"{_URL}{split}.csv", _MD5[split]), root)
    return labelled(_csv(path), CLASSES, _COUNTS[split], path)


def ag_news_pack(split: str, root: Path | None = None) -> Texts:
    """A sample of 10,000 of the training items with their true labels, and the whole test set."""
    return ag_news("test", root) if split == "test" else _sample(split, root, label=0)


def ag_news_pack_human(split: str, root: Path | None = None) -> Texts:
    """As `ag_news_pack`, the training items with labels given by people, of which some are wrong."""
    return ag_news("test", root) if split == "test" else _sample(split, root, label=1)


def _sample(split: str, root: Path | None, label: int) -> Texts:
    check_split(split, ("train", "test"))
    found = sources.find("text/ag_news_train10k.tsv.xz", root)
    if found is None:
        raise sources.missing(
            "text/ag_news_train10k.tsv.xz", root, "set VARLEARN_DATA to the folder that holds it, or use ag_news"
        )
    return labelled(prepared.rows(found, 3), CLASSES, 10_000, found, label=label, text=2)


def _csv(path: Path) -> list[list[str]]:
    """Rows (class 0 .. 3, text) of the published table."""
    rows = []
    for number, row in enumerate(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")), 1):
        if len(row) != 3 or not row[0].isdecimal():
            raise CorruptDataError(f"{path} row {number} is not (class, title, description); fetch it again")
        rows.append([str(int(row[0]) - 1), f"{row[1]} . {row[2]}"])
    return rows
