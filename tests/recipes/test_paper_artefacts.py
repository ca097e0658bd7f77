"""The paper's tables and figures by their numbers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from varlearn.cli import main
from varlearn.cli.app import app
from varlearn.cli.overrides import given
from varlearn.cli.reproduce_command import KNOWN
from varlearn.cli.train_command import chosen
from varlearn.recipes.jobs import jobs
from varlearn.recipes.paper_artefacts import ARTEFACTS, command_of
from varlearn.recipes.studies import STUDIES, study
from varlearn.recipes.tables import table


def test_all_14_tables_and_8_figures_are_named() -> None:
    labels = [artefact.label for artefact in ARTEFACTS]
    assert labels == [*(f"Table {k}" for k in range(1, 15)), *(f"Figure {k}" for k in range(1, 9))]
    assert all(artefact.full for artefact in ARTEFACTS)


def test_numbers_lead_to_names() -> None:
    names = ["table14", "figure7", "figure3c", "figure4", "table9", "table2", "shift"]
    assert list(map(command_of, names)) == [
        "competition",
        "shift",
        "in-between",
        "samples",
        "table1",
        "table2",
        "shift",
    ]


def test_the_list_shows_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["list", "paper"]) == 0
    out = capsys.readouterr().out
    assert all(artefact.label in out for artefact in ARTEFACTS)
    assert all(f"reproduce {artefact.command} " in out for artefact in ARTEFACTS)
    assert all(artefact.command in KNOWN for artefact in ARTEFACTS)


def test_an_unknown_artefact_is_refused_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "figur7"]) == 2
    assert "did you mean figure7" in capsys.readouterr().err


def test_a_part_of_a_table_is_its_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "table10", "--jobs", "-"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(line.startswith("varlearn train cifar100-") for line in lines)


def test_table12_counts_what_is_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varlearn.recipes.glue_sizes._count", lambda task, split: "7")
    assert main(["reproduce", "table12"]) == 0
    assert "393k" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["table2", "competition", "samples", "in-between", "figure2", "figure1b"])
def test_the_commands_of_a_job_file_make_exactly_its_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", name, "--jobs", "-", "--seeds", "1"]) == 0
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    found = study(name).table if name in STUDIES else table(name)
    wanted = {job.out.name: job.run for job in jobs(found, 1, Path("runs"))}
    assert len(commands) == len(wanted)
    for words in commands:
        _, bound, *_ = app.parse_args(words[1:], exit_on_error=False, print_error=False)
        arguments = bound.arguments
        settings: Any = arguments.get("settings")
        changes = given(settings) if settings is not None else {}
        run = chosen(arguments["recipe"], None, arguments["scale"], arguments["seed"], None, changes)
        assert run == wanted[Path(words[words.index("--out") + 1]).name]
