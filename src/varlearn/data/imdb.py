"""IMDB reviews (Maas et al., 2011): 25,000 + 25,000, negative or positive.

Published form: `aclImdb_v1.tar.gz`, whose MD5 is known. Prepared form: `text/imdb_{train,test}.tsv.xz` (label, stars,
text).
"""

from __future__ import annotations

from pathlib import Path

from varlearn.data import prepared, sources
from varlearn.data.archive import tarred
from varlearn.data.imageset import check_split
from varlearn.data.sources import Published
from varlearn.data.text_sets import Texts, labelled

CLASSES = ("negative", "positive")
_COUNTS = {"train": 25_000, "test": 25_000}
_ARCHIVE = Published(
    "aclImdb_v1.tar.gz",
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    "7c2ac02c03563afcf9b574c7e56c153a",
)


def imdb(split: str, root: Path | None = None) -> Texts:
    """Reviews without their line breaks; split is train or test."""
    check_split(split, _COUNTS)
    found = sources.find(f"text/imdb_{split}.tsv.xz", root)
    if found is not None:
        return labelled(prepared.rows(found, 3), CLASSES, _COUNTS[split], found, text=2)
    path = sources.published(_ARCHIVE, root)
    return labelled(_reviews(path, split), CLASSES, _COUNTS[split], path)


def _reviews(path: Path, split: str) -> list[list[str]]:
    """Rows (label, text) of the archive's files, sorted by their names."""
    files = sorted(tarred(path, rf"aclImdb/{split}/(neg|pos)/\d+_\d+\.txt"))
    texts = [(name, raw.decode("utf-8").replace("<br />", " ")) for name, raw in files]
    return [[str(int("/pos/" in name)), " ".join(text.split())] for name, text in texts]
