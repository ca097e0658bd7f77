"""Tables 2, 3 and 14 and the figures of the comparison, on tiny runs with synthetic images."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from varlearn import data
from varlearn.cli import main
from varlearn.data.synthetic_twins import synthetic
from varlearn.metrics import nll
from varlearn.recipes import bayesian_comparison, comparison_tables, samples_study, shift_study
from varlearn.recipes.bayesian_comparison import Size, comparison
from varlearn.recipes.curve_study import accuracy_by_epoch, calibration
from varlearn.recipes.entropy_study import measure as measure_entropy
from varlearn.recipes.entropy_study import overlap
from varlearn.recipes.studies import STUDIES, study
from varlearn.train import RunFolder, load_run_predictions
from varlearn.train.loaded_run import load_run

TINY = Size("frn_cnn", 100, 2, 30, 3, "fp32")
COUNTS = {"train": 120, "test": 40}


def fake_load(name: str, split: str, root: Any = None, **options: Any) -> Any:
    return synthetic(name, COUNTS[split], seed=int(split == "test"))


@pytest.fixture
def _synthetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setattr(data, "load", fake_load)
    monkeypatch.setattr(bayesian_comparison, "Size", lambda: TINY)
    monkeypatch.setattr(comparison_tables, "MEMBERS", 2)
    monkeypatch.setattr(comparison_tables, "ENSEMBLES", ("sgd", "ivon"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


ONLY = ["--methods", "sgd", "ivon", "--seeds", "1", "--quiet"]


def reproduce(name: str, folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert main(["reproduce", name, "--out", str(folder), *ONLY, *words]) == 0
    shown = capsys.readouterr()
    return shown.out, shown.err


@pytest.mark.usefixtures("_synthetic")
def test_the_comparison_its_ensembles_and_its_figures(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, since all of them read the same runs."""
    out, err = reproduce("table2", folder, capsys)
    assert "Equal compute" in err
    assert "ECE, 20 bins" in out
    for words in ("Deep ensemble of 2 x SGD", "Multi-IVON of 2", "IVON@mean", "6 test passes", "0.2190 ± 0.0020"):
        assert words in out, words
    results = json.loads((folder / "results.json").read_text())
    lines = {line["method"]: line for line in results["lines"]}
    runs = [folder / f"comparison-resnet20-sgd-small-seed{seed}" for seed in (0, 1)]
    members = [load_run_predictions(run)["test"]["averaged"] for run in runs]
    both = torch.stack([one.log_probs for one in members]).exp().mean(0).log()
    assert lines["2*sgd"]["metrics"]["nll"]["mean"] == pytest.approx(nll(both, members[0].targets), abs=1e-6)
    assert lines["2*sgd"]["metrics"]["cost"]["mean"] == 4.0
    assert [row["members"] for row in results["curves"]["ivon"]] == [1, 2]

    out, err = reproduce("table3", folder, capsys)
    assert err.count("is finished already") == 4  # the runs of table 2
    assert "tinyimagenet-pack" in out
    assert "the paper's FPR %" in out

    monkeypatch.setattr(shift_study, "CORRUPTIONS", ("contrast", "brightness"))
    out, err = reproduce("figure7", folder, capsys)
    assert "CIFAR-10-C" in err
    shifted = json.loads((folder / "shift.json").read_text())["runs"]
    rows = shifted[0]["values"]["rows"]
    assert len(rows) == 1 + 5 * 2
    clean = json.loads((runs[0] / "metrics.json").read_text())["averaged"]
    by_method = {one["method"]: one["values"] for one in shifted}
    assert by_method["sgd"]["rows"][0]["nll"] == pytest.approx(clean["nll"], abs=1e-5)
    assert by_method["sgd"]["samples"] == 1
    assert (folder / "shift.svg").exists()
    before = (runs[0] / "shift.json").stat().st_mtime_ns
    reproduce("shift", folder, capsys)
    assert (runs[0] / "shift.json").stat().st_mtime_ns == before  # measured once

    out, _ = reproduce("figure3a", folder, capsys)
    assert "share in the lowest bin" in out
    values = measure_entropy(runs[0])
    assert all(math.isclose(sum(one["shares"]), 1.0, rel_tol=1e-5) for one in values["sets"].values())

    monkeypatch.setattr(samples_study, "TRAIN_SAMPLES", {"small": (1, 2)})
    monkeypatch.setattr(samples_study, "TEST_SAMPLES", {"small": 5})
    assert main(["reproduce", "figure4", "--out", str(folder), "--seeds", "1", "--quiet"]) == 0
    assert "trained with 2" in capsys.readouterr().out
    ran = RunFolder(folder / "comparison-resnet20-ivon-samples=2-small-seed0").read_run()
    assert ran.optim.samples == 2
    kept = json.loads((folder / "samples.json").read_text())["runs"]
    assert [row["samples"] for row in kept[0]["values"]["rows"]] == [1, 2, 4, 5]


@pytest.mark.usefixtures("_synthetic")
def test_the_average_over_s_samples_is_that_of_a_prediction_with_s_samples(folder: Path) -> None:
    run = folder / "comparison-resnet20-ivon-small-seed0"
    found = samples_study.measure(run, 5)
    loaded = load_run(run)
    for row in found["rows"]:
        direct = loaded.predict(loaded.test, row["samples"])
        assert row["nll"] == pytest.approx(nll(direct.log_probs, direct.targets), abs=1e-5)
    curve = calibration(run)
    assert sum(curve["count"]) == TINY.tested
    assert curve["ece"] == pytest.approx(json.loads((run / "metrics.json").read_text())["averaged"]["ece"])
    assert accuracy_by_epoch(run)["rows"][-1]["epoch"] == TINY.epochs


@pytest.mark.usefixtures("_synthetic")
def test_sets_out_of_the_domain_keep_their_own_statistics(folder: Path) -> None:
    from dataclasses import replace

    from varlearn.train.build import build_examples, build_ood

    run = comparison("sgd")
    test = build_examples(run, "test")
    own = build_ood(run, "flowers102-pack", test)
    shared = build_ood(replace(run, data=replace(run.data, ood_own_statistics=False)), "flowers102-pack", test)
    assert shared.mean == test.mean
    assert own.mean == synthetic("flowers102-pack", 2).mean
    assert len(own) == TINY.tested


def test_overlap_of_histograms() -> None:
    assert overlap([0.5, 0.5], [0.5, 0.5]) == 1.0
    assert overlap([1.0, 0.0], [0.0, 1.0]) == 0.0


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_every_study_has_lines_and_says_what_it_needs(name: str, scale: str) -> None:
    found = study(name, scale)  # type: ignore[arg-type]
    assert found.name == name
    assert found.table.lines
    assert all(line.run.scale == scale for line in found.table.lines)
    assert "small scale" in found.needs or "Both scales" in found.needs


def test_an_unknown_study_is_refused() -> None:
    with pytest.raises(ValueError, match="'shfit' is not a study; choose one of shift"):
        study("shfit")
