"""Film reviews by the sentence: SST-5 (Socher et al., 2013) and Rotten Tomatoes (Pang and Lee, 2005).

Published forms: `trainDevTestTrees_PTB.zip` and `rt-polaritydata.tar.gz`; we know of no published checksum for either,
so the numbers of sentences are checked. Prepared forms: `text/sst5_{train,dev,test}.tsv.xz` and
`text/rotten_tomatoes.tsv.xz`.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

from varlearn.data import prepared, sources
from varlearn.data.archive import members, zipped
from varlearn.data.imageset import check_split
from varlearn.data.seeds import generator
from varlearn.data.sources import Published
from varlearn.data.text_sets import Texts, labelled

SST5_CLASSES = ("very negative", "negative", "neutral", "positive", "very positive")
CLASSES = ("negative", "positive")
_SST5_COUNTS = {"train": 8_544, "dev": 1_101, "test": 2_210}
_TREES = Published("trainDevTestTrees_PTB.zip", "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip")
_POLARITY = Published(
    "rt-polaritydata.tar.gz", "https://www.cs.cornell.edu/people/pabo/movie-review-data/rt-polaritydata.tar.gz"
)
_SENTENCES, _HELD_OUT = 10_662, 1_066


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
    """Sentences with two grades. There is no official split: a fixed random tenth is "test", the rest "train"."""
    check_split(split, ("train", "test"))
    found = sources.find("text/rotten_tomatoes.tsv.xz", root)
    rows = prepared.rows(found, 2) if found else _polarity(found := sources.published(_POLARITY, root))
    every = labelled(rows, CLASSES, _SENTENCES, found)
    order = torch.randperm(_SENTENCES, generator=generator("rotten_tomatoes"))
    chosen = order[:_HELD_OUT] if split == "test" else order[_HELD_OUT:]
    return Texts(tuple(every.texts[k] for k in chosen.tolist()), every.targets[chosen], CLASSES)


def _polarity(path: Path) -> list[list[str]]:
    names = [f"rt-polaritydata/rt-polarity.{grade}" for grade in ("neg", "pos")]
    texts = [raw.decode("latin-1") for raw in members(path, names)]
    return [[str(grade), line.strip()] for grade, text in enumerate(texts) for line in text.split("\n") if line.strip()]
