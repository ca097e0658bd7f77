"""The tasks of GLUE (Wang et al., 2019), from the archives of the benchmark and of the tasks' authors.

GLUE keeps the labels of its test splits, so the split "dev" is what one tests on; it goes by the name "test" as well,
except where labelled test data are public (MRPC, STS-B). CoLA's "dev" has both of its parts, as in GLUE. MRPC has a
separate module. Prepared forms: `text/TASK_{train,dev}.tsv.xz` (label, text, second text).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from varlearn.data import prepared, sources
from varlearn.data.archive import members, zipped
from varlearn.data.errors import CorruptDataError
from varlearn.data.imageset import check_split
from varlearn.data.sources import Published
from varlearn.data.text_sets import Texts, joined_texts, labelled

_GLUE = "https://dl.fbaipublicfiles.com/glue/data/"
_STSB = Published(
    "Stsbenchmark.tar.gz",
    "http://ixa2.si.ehu.es/stswiki/images/4/48/Stsbenchmark.tar.gz",
    "4eb0065aba063ef77873d3a9c8088811",
)
_STSB_COUNTS = {"train": 5_749, "dev": 1_500, "test": 1_379}


@dataclass(frozen=True)
class Task:
    """A classification task as published.

    Attributes:
        name: as `load` knows it.
        classes: names by number; the names that the files use for them, where they use names.
        counts: rows of each split.
        files: archive of each split, and the file in it (empty where the archive is the table itself).
        read: from the file's text to rows (label, text, second text or nothing).
        joined: splits that are others, one after the other.
        prepared: names of splits in the prepared form, where these differ.
    """

    name: str
    classes: tuple[str, ...]
    counts: dict[str, int]
    files: dict[str, tuple[Published, str]]
    read: Callable[[str, tuple[str, ...]], list[list[str]]]
    joined: dict[str, tuple[str, ...]] = field(default_factory=dict)
    prepared: dict[str, str] = field(default_factory=dict)

    def texts(self, split: str, root: Path | None = None) -> Texts:
        """The rows of a split."""
        if split == "test" and "test" not in self.counts:
            split = "dev"
        check_split(split, (*self.joined, *self.counts))
        if split in self.joined:
            return joined_texts([self.texts(part, root) for part in self.joined[split]])
        found = sources.find(f"text/{self.name}_{self.prepared.get(split, split)}.tsv.xz", root)
        if found is not None:
            table = prepared.text(found).removesuffix("\n").split("\n")
            rows = [line.split("\t") for line in table]
        else:
            archive, inside = self.files[split]
            found = sources.published(archive, root)
            raw = zipped(found, inside) if inside else found.read_bytes()
            try:
                rows = self.read(raw.decode("utf-8-sig"), self.classes)
            except (IndexError, KeyError, ValueError) as error:
                raise CorruptDataError(
                    f"{found} {inside} is not {self.name}'s table ({error}); fetch it again"
                ) from error
        columns = len(rows[0]) if rows else 0
        if any(len(row) != columns for row in rows):
            raise CorruptDataError(f"{found} has rows of different length; put the original there")
        return labelled(rows, self.classes, self.counts[split], found, second=2 if columns == 3 else None)


def _columns(*numbers: int, header: bool = True) -> Callable[[str, tuple[str, ...]], list[list[str]]]:
    """A reader of tab-separated tables without quotes: the columns of label, text and second text."""

    def read(text: str, classes: tuple[str, ...]) -> list[list[str]]:
        rows = []
        for line in text.splitlines()[int(header) :] if "\r" in text else text.split("\n")[int(header) :]:
            if line.strip():
                label, *texts = (line.split("\t")[number] for number in numbers)
                rows.append([str(classes.index(label)) if label in classes else str(int(label)), *texts])
        return rows

    return read


def _multinli(text: str, classes: tuple[str, ...]) -> list[list[str]]:
    """Rows of MultiNLI's JSON lines; the few without agreement among the annotators are left out, as GLUE does."""
    items = [json.loads(line) for line in text.split("\n") if line]
    known = [item for item in items if item["gold_label"] != "-"]
    return [[str(classes.index(item["gold_label"])), item["sentence1"], item["sentence2"]] for item in known]


def _zip(name: str, checksum: str | None, folder: str) -> dict[str, tuple[Published, str]]:
    archive = Published(name, _GLUE + name, checksum)
    return {split: (archive, f"{folder}/{split}.tsv") for split in ("train", "dev")}


_ENTAILMENT = ("entailment", "not_entailment")
_COLA = Published(
    "cola_public_1.1.zip", "https://nyu-mll.github.io/CoLA/cola_public_1.1.zip", "9f6d88c3558ec424cd9d66ea03589aba"
)
_MULTINLI = Published(
    "multinli_1.0.zip",
    "https://cims.nyu.edu/~sbowman/multinli/multinli_1.0.zip",
    "0f70aaf66293b3c088a864891db51353",
)

TASKS = {
    task.name: task
    for task in (
        Task(
            "cola",
            ("unacceptable", "acceptable"),
            {"train": 8_551, "dev_in": 527, "dev_ood": 516},
            {
                "train": (_COLA, "cola_public/raw/in_domain_train.tsv"),
                "dev_in": (_COLA, "cola_public/raw/in_domain_dev.tsv"),
                "dev_ood": (_COLA, "cola_public/raw/out_of_domain_dev.tsv"),
            },
            _columns(1, 3, header=False),
            joined={"dev": ("dev_in", "dev_ood")},
            prepared={"dev_in": "dev"},
        ),
        Task(
            "sst2",
            ("negative", "positive"),
            {"train": 67_349, "dev": 872},
            _zip("SST-2.zip", "9f81648d4199384278b86e315dac217c", "SST-2"),
            _columns(1, 0),
        ),
        Task(
            "qqp",
            ("different", "duplicate"),
            {"train": 363_846, "dev": 40_430},
            _zip("QQP-clean.zip", None, "QQP"),  # no published checksum that we know of: the number of rows is checked
            _columns(5, 3, 4),
        ),
        Task(
            "mnli",
            ("entailment", "neutral", "contradiction"),
            {"train": 392_702, "dev": 9_815, "dev_mismatched": 9_832},
            {
                split: (_MULTINLI, f"multinli_1.0/multinli_1.0_{file}.jsonl")
                for split, file in (
                    ("train", "train"),
                    ("dev", "dev_matched"),
                    ("dev_mismatched", "dev_mismatched"),
                )
            },
            _multinli,
        ),
        Task(
            "qnli",
            _ENTAILMENT,
            {"train": 104_743, "dev": 5_463},
            _zip("QNLIv2.zip", "b4efd6554440de1712e9b54e14760e82", "QNLI"),
            _columns(3, 1, 2),
        ),
        Task(
            "rte",
            _ENTAILMENT,
            {"train": 2_490, "dev": 277},
            _zip("RTE.zip", "bef554d0cafd4ab6743488101c638539", "RTE"),
            _columns(3, 1, 2),
        ),
        Task(
            "wnli",
            ("not_entailment", "entailment"),
            {"train": 635, "dev": 71},
            _zip("WNLI.zip", "a1b4bd2861017d302d29e42139657a42", "WNLI"),
            _columns(3, 1, 2),
        ),
    )
}


def stsb(split: str, root: Path | None = None) -> Texts:
    """Pairs of sentences with a score of likeness from 0 to 5; split is train, dev or test."""
    check_split(split, _STSB_COUNTS)
    found = sources.find(f"text/stsb_{split}.tsv.xz", root)
    if found is not None:
        path, rows = found, prepared.rows(found, 3)
    else:
        path = sources.published(_STSB, root)
        (raw,) = members(path, [f"stsbenchmark/sts-{split}.csv"])
        lines = [line.split("\t") for line in raw.decode("utf-8").split("\n") if line.strip()]
        rows = [[line[4], line[5], line[6].strip()] for line in lines if len(line) >= 7]
    if len(rows) != _STSB_COUNTS[split]:
        raise CorruptDataError(f"{path} holds {len(rows)} pairs of {split}, not {_STSB_COUNTS[split]}; fetch it again")
    try:
        scores = torch.tensor([float(row[0]) for row in rows])
    except ValueError as error:
        raise CorruptDataError(f"{path} has a score that is no number ({error}); fetch it again") from None
    return Texts(tuple(row[1] for row in rows), scores, (), tuple(row[2] for row in rows))
