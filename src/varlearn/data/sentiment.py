"""Film reviews by the sentence: SST-5 (Socher et al., 2013) and Rotten Tomatoes (Pang and Lee, 2005).

Published forms: `trainDevTestTrees_PTB.zip` and `rt-polaritydata.tar.gz`; we know of no published checksum for either,
so the numbers of sentences are checked. Prepared forms: `text/sst5_{train,dev,test}.tsv.xz` and
`text/rotten_tomatoes.tsv.xz`.
"""

from __future__ import annotations

import re
from pathlib import Path

from varlearn.data import prepared, sources
from varlearn.data.archive import members, zipped
from varlearn.data.imageset import check_split
from varlearn.data.sources import Published
from varlearn.data.text_sets import Texts, chosen_texts, labelled

SST5_CLASSES = ("very negative", "negative", "neutral", "positive", "very positive")
CLASSES = ("negative", "positive")
_SST5_COUNTS = {"train": 8_544, "dev": 1_101, "test": 2_210}
_TREES = Published("trainDevTestTrees_PTB.zip", "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip")
_POLARITY = Published(
    "rt-polaritydata.tar.gz", "https://www.cs.cornell.edu/people/pabo/movie-review-data/rt-polaritydata.tar.gz"
)
_SENTENCES, _TRAINING, _HELD_OUT = 5_331, 4_265, 533  # of each grade


def sst5(split: str, root: Path | None = None) -> Texts:
    """Sentences with five grades; split is train, dev or test."""
    check_split(split, _SST5_COUNTS)
    found = sources.find(f"text/sst5_{split}.tsv.xz", root)
    if found is not None:
        return labelled(prepared.rows(found, 2), SST5_CLASSES, _SST5_COUNTS[split], found)
    path = sources.published(_TREES, root)
    lines = zipped(path, f"trees/{split}.txt").decode("utf-8").splitlines()
    rows = [[line[1:2], " ".join(re.findall(r"\(\d ([^()]+)\)", line))] for line in lines if line]
    return labelled(rows, SST5_CLASSES, _SST5_COUNTS[split], path)


def rotten_tomatoes(split: str, root: Path | None = None) -> Texts:
    """Sentences with two grades; split is train (8,530), validation (1,066) or test (1,066).

    The split is the usual one: of each grade the first 4,265 sentences in the order of its file, the next 533, and the
    last 533. The positive sentences come first.
    """
    check_split(split, ("train", "validation", "test"))
    found = sources.find("text/rotten_tomatoes.tsv.xz", root)
    rows = prepared.rows(found, 2) if found else _polarity(found := sources.published(_POLARITY, root))
    every = labelled(rows, CLASSES, 2 * _SENTENCES, found)
    held = _SENTENCES - _TRAINING - _HELD_OUT
    first, last = {
        "train": (0, _TRAINING),
        "validation": (_TRAINING, _TRAINING + held),
        "test": (_TRAINING + held, _SENTENCES),
    }[split]
    grades = [(every.targets == grade).nonzero().flatten().tolist() for grade in (1, 0)]
    return chosen_texts(every, [row for grade in grades for row in grade[first:last]])


def _polarity(path: Path) -> list[list[str]]:
    names = [f"rt-polaritydata/rt-polarity.{grade}" for grade in ("neg", "pos")]
    texts = [raw.decode("latin-1") for raw in members(path, names)]
    return [[str(grade), line.strip()] for grade, text in enumerate(texts) for line in text.split("\n") if line.strip()]
