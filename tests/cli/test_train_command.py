"""`varlearn train` started in other ways: from another run's settings, with a logger, by torchrun."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from varlearn.cli import main

TINY = ["--train.steps", "4", "--train.eval_every", "0", "--evaluate.samples", "2", "--quiet"]


def test_a_point_has_one_column_of_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits-sgd", *TINY, "--out", str(tmp_path / "x")]) == 0
    out = capsys.readouterr().out
    assert "averaged" not in out
    metrics = json.loads((tmp_path / "x" / "metrics.json").read_text())
    assert f"{metrics['mean']['nll']:.4f}" in out


def test_validation_data_are_shown_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "digits-ivon", *TINY, "--data.validation", "0.1", "--out", str(tmp_path / "x")]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert "test data" in shown.out
    assert "validation data" in shown.out
    metrics = json.loads((tmp_path / "x" / "metrics.json").read_text())
    assert metrics["validation"]["mean"]["examples"] == 100
    assert f"fitted to the validation data: {metrics['temperature']:.4g}" in shown.err
    assert main([*words, "--resume"]) == 0


def test_the_folder_is_named_after_recipe_scale_and_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits-sgd", *TINY, "--seed", "3"]) == 0
    assert (tmp_path / "runs" / "digits-sgd-small-seed3" / "metrics.json").exists()


def test_the_settings_of_another_run_make_the_same_run(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["train", "digits-ivon", *TINY, "--optim.ess", "500", "--out", str(first)]) == 0
    assert main(["train", "--config", str(first / "config.json"), "--out", str(second), "--quiet"]) == 0
    for name in ("config.json", "posterior.safetensors", "metrics.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_a_logger_that_is_not_installed_is_named_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["train", "digits-sgd", *TINY, "--logger", "wandb", "--out", str(tmp_path / "x")]) == 1
    assert "pip install wandb" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--data.validation", "0.1"]], ids=["test", "validation"])
def test_two_processes_of_torchrun_write_one_run_and_one_of_them_talks(tmp_path: Path, more: list[str]) -> None:
    out = tmp_path / "x"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "varlearn"]
    words = ["train", "digits-ivon", *TINY, *more, "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run recipe=digits-ivon") == 1
    assert done.stdout.count("at the mean") == (2 if more else 1)  # a table for each split
    assert json.loads((out / "env.json").read_text())["processes"] == 2
    assert (out / "metrics.json").exists()


def test_advice_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "digits-ivon", "--schedule", "constant", "--train.steps", "120", *TINY[2:]]
    assert main([*words, "--out", str(tmp_path / "x")]) == 0
    shown = capsys.readouterr().err
    assert shown.count("The learning rate is still 1 after 120 steps") == 1
    assert "warning: Predictions are averaged over 2 sample(s)." in shown
