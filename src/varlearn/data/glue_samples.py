"""Samples of GLUE tasks whose training sets are large, for where these are not at hand.

Prepared form alone, and names that end in "-pack": none stands in for the task that it was taken from.

- `qnli-pack`: 4,976 of the 104,743 training pairs, and the whole dev set.
- `qqp-pack`: 10,000 + 2,000 pairs that are both from the training set; the two share no question.
- `mnli-pack`: 9,888 of the 392,702 training pairs, and the dev set (matched). The sample has lost its full stops, so
  they are taken out of its dev set too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from varlearn.data import prepared, sources
from varlearn.data.glue import TASKS
from varlearn.data.imageset import check_split
from varlearn.data.text_sets import Texts, labelled

# of each task: file and number of pairs of each split
_FILES = {
    "mnli": {"train": ("mnli_train10k", 9_888), "dev": ("mnli_dev", 9_815)},
    "qnli": {"train": ("qnli_train5k", 4_976), "dev": ("qnli_dev", 5_463)},
    "qqp": {"train": ("qqp_train10k", 10_000), "dev": ("qqp_held2k", 2_000)},
}


def glue_sample(task: str, split: str, root: Path | None = None) -> Texts:
    """Pairs of a sample; split is train, dev, or test, which is the same as dev.

    Args:
        task: "mnli", "qnli" or "qqp".
        split: which part.
        root: see `sources.folders`.
    """
    split = "dev" if split == "test" else split
    check_split(split, tuple(_FILES[task]))
    file, n = _FILES[task][split]
    found = sources.find(f"text/{file}.tsv.xz", root)
    if found is None:
        cure = f"set VARLEARN_DATA to the folder that holds it, or use {task}"
        raise sources.missing(f"text/{file}.tsv.xz", root, cure)
    texts = labelled(prepared.rows(found, 3), TASKS[task].classes, n, found, second=2)
    return _without_stops(texts) if task == "mnli" and split == "dev" else texts


def _without_stops(texts: Texts) -> Texts:
    firsts, seconds = (tuple(text.replace(".", "") for text in column) for column in (texts.texts, texts.seconds))
    return replace(texts, texts=firsts, seconds=seconds)


SAMPLES: dict[str, Callable[[str, Path | None], Texts]] = {
    f"{task}-pack": partial(glue_sample, task) for task in _FILES
}
"""The samples, by name."""
