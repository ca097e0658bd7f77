"""The figures about leave-one-out: the paper's settings, and what is gathered from small runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from varlearn.cli import main
from varlearn.recipes import loo_figures, recipe
from varlearn.recipes.loo_figures import changed, curve_of, faithfulness, figure_jobs
from varlearn.train import RunFolder


def runs_of(figure: str) -> dict[tuple[str, str], Any]:
    return {(job.run.model.name, job.run.optim.name): job.run for job in figure_jobs(figure, "paper", 1, Path("runs"))}


def test_figure_5_has_the_settings_of_the_appendix() -> None:
    runs = runs_of("loo-imagenet")
    ivon, adamw = runs["resnet50", "ivon"], runs["resnet50", "adamw"]
    assert len(runs) == 2
    assert (ivon.optim.lr, ivon.optim.beta1, 1 - ivon.optim.beta2) == (3.0, 0.9, pytest.approx(1e-6))
    assert (ivon.optim.hess_init, ivon.optim.weight_decay, ivon.optim.ess) == (0.008, 5e-5, None)
    assert (adamw.optim.lr, adamw.optim.beta1, adamw.optim.beta2, adamw.optim.weight_decay) == (0.001, 0.9, 0.999, 0.1)
    for run in (ivon, adamw):
        assert (run.train.epochs, run.train.schedule, run.train.final) == (100, "cosine", 0.0)
        assert run.train.warmup == 5 * (1_281_167 // 1_024)
        assert run.train.loo_every == 0


def test_figure_8_differs_from_the_image_tables_in_h0_and_takes_the_diagonal() -> None:
    runs = runs_of("loo-cifar10")
    assert set(runs) == {(model, how) for model in ("resnet18", "preresnet110") for how in ("ivon", "adamw", "sgd")}
    for (model, method), run in runs.items():
        table = recipe(f"cifar10-{model}-{method}", "paper")
        assert run.train.loo_diagonal
        if method == "ivon":
            assert run.optim.hess_init == 0.1
            assert changed(run, {"optim": {"hess_init": table.optim.hess_init}}).optim == table.optim
        else:
            assert run.optim == table.optim


def test_figure_6_keeps_the_two_epochs() -> None:
    (run,) = runs_of("sensitivity-gallery").values()
    assert run.train.snapshots == (50, 100)
    assert run.optim == runs_of("loo-imagenet")["resnet50", "ivon"].optim


def test_gap_and_correlation() -> None:
    found = faithfulness({"test": [3.0, 2.0, 1.0], "loo": [3.0, 2.5, 2.0], "train": [3.0, 1.0, 0.0]})
    assert (found["gap"], found["train_gap"], found["correlation"]) == (0.5, pytest.approx(2 / 3), pytest.approx(1.0))
    assert faithfulness({"test": [], "loo": [], "train": []})["gap"] is None


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"data": {"subset": 60, "batch_size": 20}, "evaluate": {"samples": 2}}

    def runs(figure: str, scale: str) -> list[tuple[str, dict[str, dict[str, Any]]]]:
        shown = figure == "sensitivity-gallery"
        more = {"snapshots": (1, 2)} if shown else {"loo_every": 0, "loo_examples": 20}
        train = {"steps": 6, "eval_every": None, **more}
        return [(f"digits-{name}", {**settings, "train": train}) for name in ("ivon", "adamw")[: 1 if shown else 2]]

    monkeypatch.setattr(loo_figures, "_runs", runs)
    monkeypatch.setattr(loo_figures, "SMALL_CLASS", "3")


@pytest.mark.usefixtures("_tiny")
def test_the_curves_are_those_of_the_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "loo-cifar10", "--seeds", "1", "--out", str(tmp_path / "out"), "--quiet"]
    assert main(words) == 0
    assert "Figure 8" in capsys.readouterr().out
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["ivon", "adamw"]
    for row, out in zip(rows, sorted((tmp_path / "out").glob("loo-*"), reverse=True), strict=True):
        log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        loo = [record["eval"]["nll"] for record in log if record.get("split") == "leave-one-out"]
        test = [record["eval"]["nll"] for record in log if record.get("split") == "test"]
        assert row["curve"]["step"] == [3.0, 6.0]
        assert row["curve"]["loo"] == loo == curve_of(out)["loo"]
        assert row["gap"] == pytest.approx(sum(abs(a - b) for a, b in zip(loo, test, strict=True)) / 2)
        assert (out / "leave_one_out.png").exists()
    assert main([*words, "--methods", "sgdd"]) == 2


@pytest.mark.usefixtures("_tiny")
def test_the_gallery_has_one_class_at_both_epochs(tmp_path: Path) -> None:
    assert main(["reproduce", "sensitivity-gallery", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    (run,) = (tmp_path / "out").iterdir()
    assert RunFolder(run).checkpoints.snapshots() == [1, 2]
    for epoch in (1, 2):
        page = (run / f"epoch-{epoch}" / "gallery.html").read_text()
        assert f"after epoch {epoch}." in page
        assert "Sensitivities" in page  # their distribution
        assert (run / f"epoch-{epoch}" / "sensitivity.csv").exists()
