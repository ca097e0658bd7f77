"""`varlearn predict`: inputs of a user's own, and another number of samples."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from varlearn import data
from varlearn.cli import main

TINY = ["--train.steps", "60", "--train.eval_every", "0", "--evaluate.samples", "4", "--quiet"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "x"
    assert main(["train", "digits-ivon", *TINY, "--out", str(out)]) == 0
    return out


def read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_images_of_an_array_get_the_predictions_of_the_test_set(run: Path, tmp_path: Path) -> None:
    test = data.load("digits", "test")
    np.save(tmp_path / "images.npy", test.inputs[:7].numpy())
    words = ["predict", str(run), "--input", str(tmp_path / "images.npy"), "--out", str(tmp_path / "p.csv"), "--quiet"]
    assert main(words) == 0
    from varlearn.train import load_run_predictions

    expected = load_run_predictions(run)["test"]["averaged"].log_probs[:7].exp()
    rows = read_csv(tmp_path / "p.csv")
    found = np.array([[float(row[f"p({name})"]) for name in test.classes] for row in rows])
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    assert [row["class"] for row in rows] == [test.classes[k] for k in expected.argmax(1)]


def test_pictures_are_resized_and_named_by_their_files(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    image = data.load("digits", "test").inputs[0, 0].numpy()
    for name in ("b.png", "a.png"):
        Image.fromarray(image).resize((64, 80)).save(tmp_path / name)
    assert main(["predict", str(run), "--input", str(tmp_path), "--samples", "2", "--quiet"]) == 0
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines() if ".png" in line]
    assert lines == ["a.png", "b.png"]


def test_a_table_gives_values_in_the_units_of_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from varlearn.data.examples import Examples

    def load(name: str, split: str, root: Path | None = None) -> Examples:
        inputs = torch.linspace(-1, 1, 64).view(-1, 1).repeat(1, 2)
        noise = 0.2 * torch.randn(64, generator=torch.Generator().manual_seed(0))
        return Examples(inputs, inputs[:, 0] + noise, (), "table", target_mean=100.0, target_std=50.0)

    monkeypatch.setattr(data, "load", load)
    monkeypatch.setattr(data, "options_of", lambda name: ())
    out = tmp_path / "x"
    train = ["--data.name", "uci-yacht", "--data.subset", "none"]
    train += ["--train.steps", "600", "--optim.ess", "1000", "--lr", "0.1"]
    assert main(["train", "digits-ivon", *TINY[2:], *train, "--out", str(out)]) == 0
    (tmp_path / "rows.csv").write_text("a,b\n0.5,0.5\n-0.5,-0.5\n")
    words = ["predict", str(out), "--input", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "p.csv"), "--quiet"]
    assert main(words) == 0
    rows = read_csv(tmp_path / "p.csv")
    assert [float(row["mean"]) for row in rows] == pytest.approx([125.0, 75.0], abs=6.0)
    assert float(rows[0]["std"]) > float(rows[0]["std of the weights"]) > 0.0
    capsys.readouterr()
    (tmp_path / "rows.csv").write_text("1,2,3\n")
    assert main(words) == 2
    assert "has shape (1, 3), and the run reads rows of 2 numbers" in capsys.readouterr().err


def test_another_number_of_samples_for_the_test_set(run: Path) -> None:
    assert main(["predict", str(run), "--samples", "2", "--quiet"]) == 0
    from varlearn.train import facts_of_run

    assert facts_of_run(run).samples == 2
    assert main(["predict", str(run), "--quiet"]) == 0
    assert facts_of_run(run).samples == 4
    assert json.loads((run / "config.json").read_text())["evaluate"]["samples"] == 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("images.npy", np.zeros((2, 3, 9, 9)), "the run reads images (N, 1, 8, 8)"),
        ("images.npy", np.full((2, 1, 8, 8), -1.0), "must hold numbers from 0 to 255"),
        ("rows.csv", None, "must be a file of pictures"),
        ("nowhere.npy", ..., "does not exist; give a file of inputs"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    name: str, content: object, message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if isinstance(content, np.ndarray):
        np.save(tmp_path / name, content)
    elif content is None:
        (tmp_path / name).write_text("1,2\n")
    assert main(["predict", str(run), "--input", str(tmp_path / name), "--quiet"]) == 2
    assert message in capsys.readouterr().err
