"""Table 12: the sizes of GLUE's tasks, as printed and as the data are here."""

from __future__ import annotations

from varlearn import data
from varlearn.data.errors import MissingDataError
from varlearn.recipes.paper_comparisons import GLUE_SIZES
from varlearn.recipes.study_sheet import Sheet


def glue_sizes() -> Sheet:
    """A row for each task: the paper's numbers, and how many examples can be read without a download."""
    rows = [
        [task, *printed, *(_count(task, split) for split in ("train", "test"))] for task, printed in GLUE_SIZES.items()
    ]
    columns = ["task", "train, paper", "dev, paper", "train, here", "dev, here"]
    return Sheet("Table 12: GLUE", columns, rows, 4)


def _count(task: str, split: str) -> str:
    try:
        return f"{len(data.texts(task, split).texts):,}"
    except (MissingDataError, ValueError):
        return "–"
