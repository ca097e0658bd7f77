"""`varlearn sweep`: runs in their folders, resumed, the best on validation data frozen."""

import json
from pathlib import Path

import pytest

from varlearn.cli import main
from varlearn.cli.sweep_command import grid_values
from varlearn.train import RunFolder, load_run_sensitivity

TINY = ["--train.steps", "6", "--train.eval_every", "0", "--evaluate.samples", "2"]


def test_values_of_switches_and_equals_signs() -> None:
    words = ["--optim.lr=1,2", "--optim.no-rescale_lr", "--data.augment", "--data.subset", "none,10"]
    assert grid_values(words) == {
        "optim.lr": ["1", "2"],
        "optim.rescale_lr": ["no"],
        "data.augment": ["yes"],
        "data.subset": ["none", "10"],
    }


def test_a_grid_is_trained_resumed_and_its_best_frozen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sweep"
    words = ["sweep", "digits-sgd", "--lr", "0.001,0.1", *TINY, "--seeds", "2", "--out", str(out), "--quiet"]
    assert main(words) == 0
    shown = capsys.readouterr()
    folders = sorted(path for path in out.iterdir() if path.is_dir())
    assert len(folders) == 4
    scores = {}
    for folder in folders:
        run = RunFolder(folder).read_run()
        assert run.data.validation == 0.1
        metrics = json.loads((folder / "metrics.json").read_text())
        scores.setdefault(run.optim.lr, []).append(metrics["validation"]["averaged"]["nll"])
    means = {lr: sum(values) / 2 for lr, values in scores.items()}
    best = min(means, key=means.__getitem__)
    frozen = json.loads((out / "best.json").read_text())
    assert (frozen["optim"]["lr"], frozen["seed"], frozen["train"]["steps"]) == (best, 0, 6)
    assert f"{means[best]:.4f}" in shown.out
    table = json.loads((out / "sweep.json").read_text())["points"]
    assert [row["settings"]["optim.lr"] for row in table] == ["0.001", "0.1"]
    assert [row["validation_nll"] for row in table] == pytest.approx([means[0.001], means[0.1]])

    times = {path: path.stat().st_mtime_ns for path in out.rglob("posterior.safetensors")}
    (folders[0] / "metrics.json").unlink()
    assert main(words) == 0
    assert capsys.readouterr().err.count("is finished already") == 3
    assert (folders[0] / "metrics.json").exists()
    untouched = [path for path, time in times.items() if path.stat().st_mtime_ns == time]
    assert len(untouched) >= 3

    assert main(["train", str(out / "best.json"), "--out", str(tmp_path / "best"), "--quiet"]) == 0
    assert RunFolder(tmp_path / "best").read_run().optim.lr == best


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sweep"
    words = ["sweep", "digits-sgd", "--lr", "1e30,0.1", *TINY, "--train.steps", "20", "--out", str(out), "--quiet"]
    assert main(words) == 1
    assert "failed" in capsys.readouterr().out
    assert json.loads((out / "best.json").read_text())["optim"]["lr"] == 0.1


def test_a_search_in_a_range_is_the_same_after_an_interruption(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    words = ["sweep", "digits-sgd", "--lr", "0.001:1", "--optim.beta1", "0,0.9", *TINY, "--quiet", "--trials"]

    def tried(out: Path) -> list[dict[str, str]]:
        points = json.loads((out / "sweep.json").read_text())["points"]
        assert len({json.dumps(point["settings"]) for point in points}) == len(points)
        best = min(points, key=lambda point: point["validation_nll"])
        frozen = json.loads((out / "best.json").read_text())["optim"]
        assert frozen["lr"] == float(best["settings"]["optim.lr"])
        return [point["settings"] for point in points]

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main([*words, "5", "--out", str(whole)]) == 0
    for trials in ("2", "5"):
        assert main([*words, trials, "--out", str(parts)]) == 0
    assert tried(parts) == tried(whole)
    rates = [float(point["optim.lr"]) for point in tried(whole)]
    assert len(set(rates)) == 5
    assert all(0.001 <= rate <= 1 for rate in rates)
    assert sorted(rates)[2] < 0.2  # on a logarithmic scale: the median of a uniform draw is 0.5
    assert {point["optim.beta1"] for point in tried(whole)} <= {"0", "0.9"}


def test_the_best_by_leave_one_out_holds_no_examples_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sweep"
    words = ["sweep", "digits-sgd", "--weight_decay", "0.0001,1", *TINY, "--data.subset", "100", "--by", "loo"]
    words += ["--out", str(out), "--quiet"]
    assert main(words) == 0
    assert "leave-one-out loss" in capsys.readouterr().out
    found = json.loads((out / "sweep.json").read_text())
    losses = {}
    for point in found["points"]:
        folder = out / point["runs"][0]
        assert RunFolder(folder).read_run().data.validation == 0
        loss = load_run_sensitivity(folder).values["loo_loss"].double().mean().item()
        assert point["loo_nll"] == pytest.approx(loss)
        losses[float(point["settings"]["optim.weight_decay"])] = loss
    best = json.loads((out / "best.json").read_text())
    assert best["optim"]["weight_decay"] == min(losses, key=losses.__getitem__)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("sensitivity.safetensors")}
    assert main(words) == 0  # nothing is computed again
    assert {path: path.stat().st_mtime_ns for path in out.rglob("sensitivity.safetensors")} == before
