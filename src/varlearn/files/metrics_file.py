"""`metrics.json` of a run: read and checked, for tables, reports and reproductions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from varlearn.files.checked_json import read_json
from varlearn.files.formats import CURE, FileFormatError, entry, shown

KINDS = ("mean", "averaged")


def read_metrics(path: Path) -> dict[str, Any]:
    """The scores of a run: "mean" and "averaged", each with numbers by name and perhaps "ood"; perhaps "validation".

    Raises:
        CorruptFileError: if the file is damaged.
        FileFormatError: if it holds something else.

    >>> import tempfile
    >>> from varlearn.files.checked_json import write_json
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(Path(folder, "metrics.json"), {"mean": {"nll": 0.5}, "averaged": {"nll": "inf"}})
    ...     read_metrics(Path(folder, "metrics.json"))
    {'averaged': {'nll': 'inf'}, 'mean': {'nll': 0.5}}
    """
    values = read_json(path)
    _check_kinds(path, values, "metrics")
    if "validation" in values:
        _check_kinds(path, entry(path, values, "validation", dict, "metrics"), "metrics['validation']")
    if values.get("temperature") is not None:
        entry(path, values, "temperature", (int, float), "metrics")
    return values


def _check_kinds(path: Path, values: dict[str, Any], where: str) -> None:
    for kind in KINDS:
        scores = entry(path, values, kind, dict, where)
        outside = entry(path, scores, "ood", dict, f"{where}[{kind!r}]") if "ood" in scores else {}
        _check_scores(path, {name: value for name, value in scores.items() if name != "ood"}, f"{where}[{kind!r}]")
        for name in outside:
            place = f"{where}[{kind!r}]['ood']"
            away = entry(path, outside, name, dict, place)
            for key in ("auroc", "fpr95", "detection_error"):
                entry(path, away, key, (int, float), f"{place}[{shown(name)}]")
            _check_scores(path, away, f"{place}[{shown(name)}]")


def _check_scores(path: Path, scores: dict[str, Any], where: str) -> None:
    """A score is a number, None, or a word for a number that JSON lacks."""
    for name, value in scores.items():
        if isinstance(value, bool) or not (value is None or isinstance(value, (int, float, str))):
            raise FileFormatError(f"{path}: {where}[{shown(name)}] is {shown(value)} and must be a number; {CURE}")
