"""Scores of a run that are no scores are refused by name."""

from pathlib import Path
from typing import Any

import pytest

from varlearn.files.checked_json import write_json
from varlearn.files.formats import FileFormatError
from varlearn.files.metrics_file import read_metrics

AWAY = {"auroc": 0.9, "fpr95": 0.1, "detection_error": 0.05}
SCORES: dict[str, Any] = {"nll": 0.5, "auroc": None, "perplexity": "inf", "ood": {"svhn": AWAY}}


def test_scores_come_back(tmp_path: Path) -> None:
    values = {"mean": SCORES, "averaged": SCORES, "validation": {"mean": SCORES, "averaged": {}}, "temperature": 1.5}
    write_json(tmp_path / "metrics.json", values)
    assert read_metrics(tmp_path / "metrics.json") == values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, r"metrics has no entry 'mean'"),
        ({"optim": {"lr": 0.1}}, r"metrics has no entry 'mean'"),
        ({"mean": SCORES, "averaged": 3}, r"metrics\['averaged'\] is 3 and must be of type dict"),
        ({"mean": {"nll": []}, "averaged": {}}, r"metrics\['mean'\]\['nll'\] is \[\] and must be a number"),
        ({"mean": {"nll": True}, "averaged": {}}, r"metrics\['mean'\]\['nll'\] is True"),
        ({"mean": {"ood": {"a": {}}}, "averaged": {}}, r"\['ood'\]\['a'\] has no entry 'auroc'"),
        ({"mean": {"ood": []}, "averaged": {}}, r"\['ood'\] is \[\] and must be of type dict"),
        ({"mean": {}, "averaged": {}, "validation": {"mean": {}}}, r"metrics\['validation'\] has no entry 'averaged'"),
        ({"mean": {}, "averaged": {}, "temperature": "warm"}, r"metrics\['temperature'\] is 'warm'"),
    ],
)
def test_what_is_no_score_is_named(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_json(tmp_path / "metrics.json", values)
    with pytest.raises(FileFormatError, match=message) as caught:
        read_metrics(tmp_path / "metrics.json")
    assert "metrics.json" in str(caught.value)
