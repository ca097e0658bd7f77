"""A method is a file and a row of the table: the command line then trains, saves, resumes, predicts and reports it.

Those of `RUN` stand for all kinds: an optimizer of an example file, which nothing outside this folder knows; a
collector, a fit after training, a changed network.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.methods.examples import EXAMPLES
from varlearn import posterior
from varlearn.cli import app, main, overrides, train_command
from varlearn.methods import METHODS
from varlearn.posterior import DiagGaussian, LowRankGaussian, Mixture, Point

REPOSITORY = Path(__file__).parents[2]
FLAGS = ["--train.steps", "120", "--train.eval_every", "60", "--train.checkpoint_every", "15"]
FLAGS += ["--evaluate.samples", "4", "--evaluate.subset", "200", "--quiet"]
POSTERIORS = {"vsgd": DiagGaussian, "mc-dropout": Point, "swag": LowRankGaussian, "bbb": DiagGaussian}
POSTERIORS |= {"bbb-paper": DiagGaussian, "laplace": LowRankGaussian, "sae": Mixture}
OWN = {"vsgd": ("std", 0.02), "mc-dropout": ("rate", 0.3), "swag": ("rank", 3)}
OWN |= {
    "bbb": ("hess_init", 0.25),
    "bbb-paper": ("prior_std", 2.0),
    "laplace": ("prior_precision", 50.0),
    "sae": ("members", 3),
}
RUN = list(POSTERIORS)


@pytest.fixture(scope="module", autouse=True)
def _rows() -> Iterator[None]:
    """The examples in the table. The flags of the command line are made when its module is imported."""
    METHODS.update(EXAMPLES)
    importlib.reload(train_command)
    importlib.reload(app)
    yield
    for name in EXAMPLES:
        del METHODS[name]
    importlib.reload(train_command)
    importlib.reload(app)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each method, trained, predicted and scored without a break."""
    folder = tmp_path_factory.mktemp("straight")
    outs = {name: folder / name for name in RUN}
    for name, out in outs.items():
        assert main(["train", f"digits-{name}", *FLAGS, "--out", str(out)]) == 0
    return outs


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", RUN)
def test_it_learns_and_gives_its_posterior(name: str, runs: dict[str, Path]) -> None:
    assert type(posterior.load(runs[name] / "posterior.safetensors")) is POSTERIORS[name]
    metrics = read(runs[name] / "metrics.json")
    assert metrics["mean"]["accuracy"] > 0.8
    assert metrics["averaged"]["accuracy"] > 0.8
    assert (metrics["averaged"] != metrics["mean"]) == (name != "sae")  # whose members are points


def test_a_killed_run_ends_with_the_same_bits(runs: dict[str, Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.methods.kills", str(tmp_path), *RUN, "--", *FLAGS]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert all(30 <= step < 120 for step in json.loads(done.stdout.splitlines()[-1]).values()), done.stdout
    for name, straight in runs.items():
        for file in ("config.json", "log.jsonl", "posterior.safetensors", "predictions.safetensors", "metrics.json"):
            assert (tmp_path / name / file).read_bytes() == (straight / file).read_bytes(), (name, file)


@pytest.mark.parametrize("name", RUN)
def test_the_later_stages_repeat_what_train_wrote(name: str, runs: dict[str, Path]) -> None:
    out = runs[name]
    files = [out / "predictions.safetensors", out / "metrics.json"]
    before = [path.read_bytes() for path in files]
    for path in files:
        path.unlink()
    assert main(["predict", str(out), "--quiet"]) == 0
    assert main(["score", str(out)]) == 0
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize("name", RUN)
def test_its_setting_is_a_flag_a_key_and_a_row_of_the_report(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (setting, value), out = OWN[name], tmp_path / "x"
    assert main(["train", "--help"]) == 0
    assert f"--optim.{setting}" in capsys.readouterr().out
    short = ["--train.steps", "60", "--train.eval_every", "0", "--evaluate.samples", "2", "--quiet"]
    assert main(["train", f"digits-{name}", *short, f"--optim.{setting}", str(value), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert f"{setting}={value}" in shown
    assert "averaged" in shown
    assert read(out / "config.json")["optim"][setting] == value
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert METHODS[name].label in page
    assert f"&quot;{setting}&quot;: {value}" in page


def test_a_wrong_setting_is_refused_with_its_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits-swag", "--optim.rank", "1", "--out", str(tmp_path / "x")]) == 2
    assert "optim.rank=1 must be >= 2; 20 is the paper's" in capsys.readouterr().err
    with pytest.raises(ValueError, match="optim.rank is not a setting of a run"):
        overrides.laid_over(train_command.named_recipe("digits-sgd"), {"optim": {"rank": 3}})


def test_the_method_of_a_recipe_can_be_changed_back_and_forth() -> None:
    base = train_command.named_recipe("digits-sgd")
    swag = overrides.laid_over(base, {"optim": {"name": "swag", "rank": 3}})
    assert type(swag.optim) is METHODS["swag"].Settings
    assert (swag.optim.beta1, swag.optim.rank) == (base.optim.beta1, 3)  # type: ignore[attr-defined]
    assert swag.optim.lr == METHODS["swag"].Settings.lr  # a method with another default has another scale
    assert overrides.laid_over(swag, {"optim": {"name": "sgd", "lr": base.optim.lr}}) == base


def test_diagnostics_stand_in_the_log_under_the_name(runs: dict[str, Path]) -> None:
    records = [json.loads(line) for line in (runs["swag"] / "log.jsonl").read_text().splitlines()]
    assert [record["swag"]["collected"] for record in records if "swag" in record] == [0, 0, 0, 0, 0, 2]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_two_processes_train_it_together(name: str, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = ["-m", "tests.methods.command", "train", f"digits-{name}", *FLAGS, "--out", str(tmp_path / "x")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, *words], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert type(posterior.load(tmp_path / "x" / "posterior.safetensors")) is POSTERIORS[name]
    assert read(tmp_path / "x" / "metrics.json")["averaged"]["accuracy"] > 0.8
