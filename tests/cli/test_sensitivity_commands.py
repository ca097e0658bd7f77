"""`varlearn sensitivity` and `varlearn examples`: the files, their numbers, and wrong use."""

import csv
import re
from pathlib import Path

import pytest
import torch

import varlearn
from varlearn import data, posterior
from varlearn.cli import main
from varlearn.data.batches import Batches
from varlearn.posterior import DiagGaussian
from varlearn.sensitivities.example_count import with_ess
from varlearn.train import RunFolder, load_run_sensitivity
from varlearn.train.build import build_model

TINY = ["--train.steps", "6", "--data.subset", "60", "--data.batch_size", "20", "--evaluate.samples", "2", "--quiet"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An IVON run that measures while it trains and holds examples out, and an AdamW run with snapshots."""
    out = tmp_path_factory.mktemp("runs")
    more = ["--train.loo_every", "0", "--train.loo_examples", "10", "--data.validation", "0.2"]
    assert main(["train", "digits-ivon", "--out", str(out / "ivon"), *TINY, *more]) == 0
    assert main(["train", "digits-adamw", "--out", str(out / "adamw"), *TINY, "--train.snapshots", "1"]) == 0
    return out


def test_the_files_hold_what_the_function_says(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = runs / "ivon"
    assert main(["sensitivity", str(out), "--quiet"]) == 0
    assert "leave-one-out loss" in capsys.readouterr().err
    examples = data.load("digits", "train").first(60)
    model = build_model(RunFolder(out).read_run(), examples)
    q = posterior.load(out / "posterior.safetensors", model)
    assert isinstance(q, DiagGaussian)
    q = with_ess(q, 48)
    everything = varlearn.sensitivity(model.eval(), q, Batches(examples, 50))
    found = load_run_sensitivity(out).values
    assert len(found["ids"]) == 48  # 12 are held out
    rows = found["ids"]
    torch.testing.assert_close(found["score"], everything.score[rows])
    torch.testing.assert_close(found["paper_score"], everything.deviation.abs().sum(1)[rows])
    torch.testing.assert_close(found["loo_probs"], everything.loo_probs[rows])
    assert torch.equal(found["labels"], examples.targets[rows])
    assert int((found["accumulated_updates"] == 2).sum()) == 10
    assert int(found["accumulated_score"].isnan().sum()) == 38
    table = list(csv.DictReader((out / "sensitivity.csv").read_text().splitlines()))
    assert [int(row["id"]) for row in table] == rows.tolist()
    assert [int(row["label"]) for row in table] == found["labels"].tolist()
    probs = found["loo_probs"].gather(1, found["labels"][:, None]).squeeze(1)
    assert [float(row["loo_label_prob"]) for row in table] == pytest.approx(probs.tolist())


def test_a_snapshot_is_another_epoch_of_the_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = runs / "adamw"
    assert main(["sensitivity", str(out), "--quiet"]) == 0
    last = load_run_sensitivity(out)
    assert main(["sensitivity", str(out), "--snapshot", "1", "--score", "paper", "--quiet"]) == 0
    first = load_run_sensitivity(out)
    assert (first.about["epoch"], last.about["epoch"]) == (1.0, 2.0)
    assert torch.equal(first.values["score"], first.values["paper_score"])
    assert first.values["loss"].mean() > last.values["loss"].mean()
    assert main(["sensitivity", str(out), "--snapshot", "7"]) == 2
    assert "has no snapshot of epoch 7; it has 1" in capsys.readouterr().err


def test_examples_are_those_of_the_result_after_a_snapshot_was_looked_at(runs: Path, tmp_path: Path) -> None:
    out, words = runs / "adamw", ["--most", "2", "--out", str(tmp_path), "--quiet"]
    for snapshot, epoch in (["--snapshot", "1"], "1"), ([], "2"):
        assert main(["examples", str(out), *snapshot, *words]) == 0
        assert f"after epoch {epoch}." in (tmp_path / "gallery.html").read_text()
    before = (out / "sensitivity.safetensors").stat().st_mtime_ns
    assert main(["examples", str(out), *words]) == 0
    assert (out / "sensitivity.safetensors").stat().st_mtime_ns == before


def test_the_gallery_shows_the_most_and_the_least_sensitive_of_each_class(runs: Path, tmp_path: Path) -> None:
    out = runs / "adamw"
    assert main(["examples", str(out), "--most", "10", "--by", "loss", "--out", str(tmp_path), "--quiet"]) == 0
    page = (tmp_path / "gallery.html").read_text()
    assert page.count("<img") == 2 * 10 + 2 * 10
    found = load_run_sensitivity(out).values
    most = int(found["ids"][found["loss"].argmax()])
    assert re.findall(r"number (\d+)<", page)[0] == str(most)
    assert (tmp_path / "gallery.png").stat().st_size > 10_000
    assert "<script" not in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sensitivity", "nowhere"], "holds no run"),
        (["examples", "adamw", "--most", "0"], "--most 0 must be at least 1"),
        (["examples", "adamw", "--by", "accumulated"], "needs a run that measured while it trained"),
        (["sensitivity", "adamw", "--score", "l3"], "Invalid value"),
    ],
)
def test_wrong_use_is_refused(
    runs: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    assert main(words) == 2
    assert message in capsys.readouterr().err
