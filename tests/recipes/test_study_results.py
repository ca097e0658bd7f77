"""What is measured in a run comes back from its file as it was."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from varlearn.recipes import study_results
from varlearn.recipes.jobs import Job
from varlearn.recipes.studies import study


class _Finished(Job):
    finished = True  # type: ignore[assignment]


def test_a_measurement_that_is_not_finite_is_a_number_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: dict[str, Any] = {"ratio": math.nan, "gap": [math.inf, 1.0], "name": "shift", "none": None}
    found = replace(study("in-between"), measure=lambda run: measured)
    line = found.table.lines[0]
    monkeypatch.setattr(study_results, "line_jobs", lambda *_: [_Finished(line.run, {}, tmp_path / "run")])
    (tmp_path / "run").mkdir()
    for _ in range(2):  # measured, then read from the file
        one = study_results.measure_runs(replace(found, table=replace(found.table, lines=(line,))), 1, tmp_path, print)
        values = one[0].values
        assert math.isnan(values["ratio"])
        assert values["gap"] == [math.inf, 1.0]
        assert (values["name"], values["none"]) == ("shift", None)
