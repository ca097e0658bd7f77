"""MRPC (Dolan and Brockett, 2005) with the splits of GLUE: 3,668 pairs to train on, 408 of dev and 1,725 of test.

GLUE cut its dev set out of the 4,076 training pairs of the authors, and publishes a list of the pairs. Published form:
`msr_paraphrase_{train,test}.txt` and `mrpc_dev_ids.tsv`. Prepared form: `text/mrpc_{train,test}.tsv.xz` and, in
`text/splits.npz`, the rows of dev.
"""

from __future__ import annotations

from pathlib import Path

from varlearn.data import prepared, sources
from varlearn.data.errors import CorruptDataError
from varlearn.data.imageset import check_split
from varlearn.data.sources import Published
from varlearn.data.text_sets import Texts, chosen_texts, labelled

CLASSES = ("different", "equivalent")
_COUNTS = {"train": 4_076, "test": 1_725}  # of the authors' files
_DEV = 408
_MSR = "https://dl.fbaipublicfiles.com/senteval/senteval_data/"
_MD5 = {"train": "793daf7b6224281e75fe61c1f80afe35", "test": "e437fdddb92535b820fe8852e2df8a49"}
_IDS = Published("mrpc_dev_ids.tsv", "https://dl.fbaipublicfiles.com/glue/data/mrpc_dev_ids.tsv")  # checked by count


def mrpc(split: str, root: Path | None = None) -> Texts:
    """Pairs of sentences and whether they say the same; split is train, dev or test."""
    check_split(split, ("train", "dev", "test"))
    part = "test" if split == "test" else "train"
    found = sources.find(f"text/mrpc_{part}.tsv.xz", root)
    if found is not None:
        rows = prepared.rows(found, 3)
    else:
        found, published = _published(part, root)
        rows = [[row[0], row[3], row[4]] for row in published]
    every = labelled(rows, CLASSES, _COUNTS[part], found, second=2)
    if part == "test":
        return every
    dev = _dev_rows(found, root)
    return chosen_texts(every, [row for row in range(len(every)) if (row in dev) == (split == "dev")])


def _published(part: str, root: Path | None) -> tuple[Path, list[list[str]]]:
    """The authors' file, and its rows (label, first id, second id, first text, second text)."""
    name = f"msr_paraphrase_{part}.txt"
    path = sources.published(Published(name, _MSR + name, _MD5[part]), root)
    rows = [line.split("\t") for line in path.read_bytes().decode("utf-8-sig").splitlines()[1:] if line.strip()]
    if any(len(row) != 5 for row in rows):
        raise CorruptDataError(f"{path} is not MRPC's table of five columns; fetch it again")
    return path, rows


def _dev_rows(table: Path, root: Path | None) -> set[int]:
    """The rows of the training table that are GLUE's dev set."""
    if table.name.endswith(".xz"):
        splits = table.parent / "splits.npz"
        found = {int(row) for row in prepared.arrays(splits)["mrpc_dev"]}
        source: Path = splits
    else:
        source = sources.published(_IDS, root)
        lines = source.read_text(encoding="utf-8").splitlines()
        pairs = {tuple(line.split("\t")[:2]) for line in lines}
        found = {number for number, row in enumerate(_published("train", root)[1]) if (row[1], row[2]) in pairs}
    if len(found) != _DEV:
        raise CorruptDataError(f"{source} names {len(found)} pairs of MRPC's dev set, not {_DEV}; fetch it again")
    return found
