"""`fit`: the files of a run, resumption to the bit, signals, NaN and full disks."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train import tiny
from tests.train.tiny import tiny_run
from varlearn import data, posterior
from varlearn.data.batches import Batches
from varlearn.data.examples import Examples
from varlearn.files.checked_json import read_json_lines
from varlearn.files.formats import FileFormatError
from varlearn.files.nested import pack
from varlearn.posterior import DiagGaussian, Origin, Point
from varlearn.prediction import calibrate
from varlearn.train import (
    Interrupted,
    Model,
    NonFiniteLossError,
    Run,
    RunFolder,
    RunFolderError,
    WriteError,
    fit,
    from_json,
)
from varlearn.train import checkpoint as checkpoint_module
from varlearn.train.build import build_batches, build_examples, build_model
from varlearn.train.training import Training

pytestmark = pytest.mark.usefixtures("tiny_data")
METHODS = ["ivon", "adamw", "sgd"]


def records(out: Path) -> list[dict[str, Any]]:
    return read_json_lines(out / "log.jsonl").records


def result(out: Path) -> dict[str, Any]:
    """What must not depend on interruptions: the bytes of the files, and the tensors and numbers of the checkpoints."""
    files: dict[str, Any] = {
        name: (out / name).read_bytes() for name in ("config.json", "log.jsonl", "posterior.safetensors")
    }
    for path in sorted((out / "checkpoint").glob("*.safetensors")):
        state = checkpoint_module.read(path)
        for group in state["training"]["optimizer"]["param_groups"]:
            group.pop("differentiable", None)  # PyTorch adds it when a state is loaded
        plain, tensors = pack(state)
        files[path.name] = plain, {name: value.numpy().tobytes() for name, value in tensors.items()}
    return files


def with_validation(run: Run, share: float = 0.2) -> Run:
    return replace(run, data=replace(run.data, validation=share))


def signal_at(step: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send this process a signal in the middle of a step."""
    update = Training.update

    def update_and_signal(self: Training) -> None:
        if self.step == step:
            signal.raise_signal(number)
        update(self)

    monkeypatch.setattr(Training, "update", update_and_signal)


@pytest.mark.parametrize("method", METHODS)
def test_the_files_of_a_run(method: str, tmp_path: Path) -> None:
    run = tiny_run(method)
    path = fit(run, tmp_path / "run", progress=False)
    assert path == tmp_path / "run" / "posterior.safetensors"
    assert from_json((tmp_path / "run" / "config.json").read_text()) == run
    assert json.loads((tmp_path / "run" / "env.json").read_text())["packages"]["torch"]
    learned = posterior.load(path)
    assert isinstance(learned, DiagGaussian if method == "ivon" else Point)
    lines = records(tmp_path / "run")
    assert [line["step"] for line in lines if "loss" in line] == [4, 8, 12, 16, 18]
    assert [line["step"] for line in lines if "eval" in line] == [6, 12, 18]
    assert ("ivon" in lines[0]) == (method == "ivon")
    evals = [line["eval"] for line in lines if "eval" in line]
    assert evals[-1]["accuracy"] > 0.5
    assert evals[-1]["nll"] < evals[0]["nll"]
    steps = sorted(file.name for file in (tmp_path / "run" / "checkpoint").iterdir())
    assert steps == [
        "step-00000012.safetensors",
        "step-00000018.safetensors",
    ]  # none chosen on test data
    assert {line["split"] for line in lines if "eval" in line} == {"test"}


def test_the_same_run_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    run = tiny_run()
    for name in ("a", "b"):
        torch.manual_seed(hash(name) % 1000)
        fit(run, tmp_path / name, progress=False)
    fit(replace(run, seed=1), tmp_path / "c", progress=False)
    assert result(tmp_path / "a") == result(tmp_path / "b")
    assert (tmp_path / "a" / "posterior.safetensors").read_bytes() != (
        tmp_path / "c" / "posterior.safetensors"
    ).read_bytes()


def test_the_callers_random_state_is_left_alone(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    fit(tiny_run(), tmp_path / "run", progress=False)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("validation", [0, 0.2])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_resuming_gives_the_same_bytes(
    method: str,
    validation: float,
    number: int,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = with_validation(tiny_run(method, accumulate=2, steps=11, eval_every=3), validation)
    fit(run, tmp_path / "straight", progress=False)
    out = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        signal_at(6, number, patch)
        with pytest.raises(Interrupted) as stop:
            fit(run, out, progress=False)
    assert stop.value.code == code
    assert "stopped after step 7 of 11" in capsys.readouterr().err
    assert not (out / "posterior.safetensors").exists()
    fit(run, out, resume=True, progress=False)
    assert "going on at step 7 of 11" in capsys.readouterr().err
    assert result(out) == result(tmp_path / "straight")


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update = Training.update

    def twice(self: Training) -> None:
        if self.step == 7:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        update(self)

    monkeypatch.setattr(Training, "update", twice)
    with pytest.raises(KeyboardInterrupt):
        fit(tiny_run(), tmp_path / "run", progress=False)
    monkeypatch.setattr(Training, "update", update)
    fit(tiny_run(), tmp_path / "run", resume=True, progress=False)
    fit(tiny_run(), tmp_path / "straight", progress=False)
    assert result(tmp_path / "run") == result(tmp_path / "straight")


def test_lines_after_the_checkpoint_are_cut_off(tmp_path: Path) -> None:
    run = tiny_run()
    fit(run, tmp_path / "run", progress=False)
    straight = result(tmp_path / "run")
    (tmp_path / "run" / "checkpoint" / "step-00000018.safetensors").unlink()
    with open(tmp_path / "run" / "log.jsonl", "a") as file:
        file.write('{"step": 19, "lo')
    fit(run, tmp_path / "run", resume=True, progress=False)
    assert result(tmp_path / "run") == straight


def test_a_damaged_checkpoint_is_passed_over_and_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tiny_run()
    fit(run, tmp_path / "run", progress=False)
    straight = result(tmp_path / "run")
    newest = tmp_path / "run" / "checkpoint" / "step-00000018.safetensors"
    content = bytearray(newest.read_bytes())
    content[-3] ^= 4
    newest.write_bytes(content)
    fit(run, tmp_path / "run", resume=True, progress=False)
    said = capsys.readouterr().err
    assert "step-00000018.safetensors has SHA-256" in said
    assert "going on at step 12 of 18" in said
    assert (newest.parent / "step-00000018.safetensors.damaged").exists()
    assert result(tmp_path / "run") == straight


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    fit(tiny_run(), tmp_path / "run", progress=False)
    straight = result(tmp_path / "run")
    fit(tiny_run(), tmp_path / "run", resume=True, progress=False)
    assert result(tmp_path / "run") == straight


def test_resuming_nothing_begins(tmp_path: Path) -> None:
    fit(tiny_run(), tmp_path / "run", resume=True, progress=False)
    fit(tiny_run(), tmp_path / "straight", progress=False)
    assert result(tmp_path / "run") == result(tmp_path / "straight")


def test_resuming_with_other_settings_names_them(tmp_path: Path) -> None:
    fit(tiny_run(), tmp_path / "run", progress=False)
    other = replace(tiny_run(epochs=4), seed=3)
    with pytest.raises(RunFolderError, match=r"seed was 0, is now 3; train.epochs was 3, is now 4\. Resume with"):
        fit(other, tmp_path / "run", resume=True, progress=False)


def poisoned(after: int, value: float) -> Any:
    """`tiny.load` with a pixel statistic that makes the loss NaN or infinite from some step on."""
    gradients = Training.gradients

    def poison(self: Training) -> torch.Tensor:
        loss = gradients(self)
        return loss + value if self.step >= after else loss

    return poison


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("method", METHODS)
def test_a_loss_that_is_no_number_stops_the_run(
    method: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny_run(method)
    with monkeypatch.context() as patch:
        patch.setattr(Training, "gradients", poisoned(8, value))
        with pytest.raises(NonFiniteLossError, match=r"at step 9; the last good checkpoint is .*step-00000006"):
            fit(run, tmp_path / "run", progress=False)
    fit(run, tmp_path / "run", resume=True, progress=False)  # the checkpoint is good
    fit(run, tmp_path / "straight", progress=False)
    assert result(tmp_path / "run") == result(tmp_path / "straight")


def test_real_nan_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(name: str, split: str, root: Path | None = None) -> Examples:
        return replace(tiny.load(name, split), mean=(float("nan"),))

    monkeypatch.setattr(data, "load", bad)
    with pytest.raises(NonFiniteLossError, match=r"at step 1; there is no checkpoint yet"):
        fit(tiny_run("adamw"), tmp_path / "run", progress=False)


def test_a_full_disk_leaves_a_run_that_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny_run()
    write = checkpoint_module.sealed.write

    def full(path: Path, *rest: Any) -> None:
        if "00000012" in str(path):
            raise OSError(28, os.strerror(28))
        write(path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module.sealed, "write", full)
        with pytest.raises(WriteError, match=r"step-00000012.*No space left on device.*resume"):
            fit(run, tmp_path / "run", progress=False)
    fit(run, tmp_path / "run", resume=True, progress=False)
    fit(run, tmp_path / "straight", progress=False)
    assert result(tmp_path / "run") == result(tmp_path / "straight")


def test_another_logger_gets_every_record_and_is_closed(tmp_path: Path) -> None:
    class Keeper:
        def __init__(self) -> None:
            self.records: list[Any] = []
            self.closed = False

        def write(self, record: Any) -> None:
            self.records.append(record)

        def close(self) -> None:
            self.closed = True

    keeper = Keeper()
    fit(tiny_run(), tmp_path / "run", progress=False, logger=keeper)
    assert keeper.closed
    assert json.loads(json.dumps(keeper.records)) == records(tmp_path / "run")
    refused = Keeper()
    with pytest.raises(RunFolderError, match="already holds a run"):
        fit(tiny_run(), tmp_path / "run", progress=False, logger=refused)
    assert refused.closed


@pytest.mark.parametrize(
    ("every", "evals", "checkpoints"),
    [(0, [18], ["18"]), (5, [5, 10, 15, 18], ["15", "18"]), (None, [6, 12, 18], ["12", "18"])],
)
def test_what_is_due_when(every: int | None, evals: list[int], checkpoints: list[str], tmp_path: Path) -> None:
    fit(tiny_run(eval_every=every, checkpoint_every=every), tmp_path / "run", progress=False)
    assert [line["step"] for line in records(tmp_path / "run") if "eval" in line] == evals
    found = sorted(path.stem[-2:] for path in (tmp_path / "run" / "checkpoint").glob("step-*"))
    assert found == checkpoints


def test_lost_lines_of_the_log_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tiny_run(), tmp_path / "run", progress=False)
    (tmp_path / "run" / "log.jsonl").write_text("")
    fit(tiny_run(), tmp_path / "run", resume=True, progress=False)
    assert "log.jsonl has lost lines since the checkpoint" in capsys.readouterr().err


def test_another_machine_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tiny_run(), tmp_path / "run", progress=False)
    (tmp_path / "run" / "env.json").write_text("{}")
    fit(tiny_run(), tmp_path / "run", resume=True, progress=False)
    assert "the machine or a package differs from" in capsys.readouterr().err


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    fit(tiny_run(), tmp_path / "run", progress=False)
    with RunFolder(tmp_path / "run").locked(), pytest.raises(RunFolderError, match="another process is training in"):
        fit(tiny_run(), tmp_path / "run", resume=True, progress=False)


@pytest.mark.parametrize("method", ["ivon", "adamw"])
def test_convolutions_in_channels_last_resume_to_the_bit(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny_run(method, steps=3, checkpoint_every=1, precision="bf16")
    run = replace(run, model=Model("resnet20", classes=3), data=replace(run.data, name="colour"))
    fit(run, tmp_path / "straight", progress=False)
    with monkeypatch.context() as patch:
        signal_at(0, signal.SIGTERM, patch)
        with pytest.raises(Interrupted):
            fit(run, tmp_path / "stopped", progress=False)
    fit(run, tmp_path / "stopped", resume=True, progress=False)
    assert result(tmp_path / "stopped") == result(tmp_path / "straight")


def test_without_validation_data_no_best_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tiny_run(), tmp_path / "run")
    assert not RunFolder(tmp_path / "run").checkpoints.best.exists()
    assert "data.validation=0: evaluations use test data, so no best checkpoint is chosen" in capsys.readouterr().err


@pytest.mark.parametrize("method", METHODS)
def test_a_run_with_validation_data(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = with_validation(tiny_run(method))
    measured: list[Batches] = []
    evaluate = Training.evaluate
    monkeypatch.setattr(Training, "evaluate", lambda self, given: (measured.append(given), evaluate(self, given))[1])
    learned = posterior.load(fit(run, tmp_path / "run", progress=False))
    validation = build_examples(run, "validation")
    assert len(validation) == 19
    assert all(torch.equal(batches.examples.inputs[:], validation.inputs[:]) for batches in measured)
    lines = [line for line in records(tmp_path / "run") if "eval" in line]
    assert [line["split"] for line in lines] == ["validation"] * 3
    best = checkpoint_module.read(RunFolder(tmp_path / "run").checkpoints.best)
    assert best["best"] == min(line["eval"]["nll"] for line in lines)
    if method == "ivon":
        assert isinstance(learned, DiagGaussian)
        assert learned.ess == dict.fromkeys(learned.mean, 77.0)  # of 96 examples; the temperature does not change it
        assert learned.origin == Origin("ivon", "ivon", n=77, batch_size=16)


def test_the_temperature_is_the_fitted_one(tmp_path: Path) -> None:
    run = with_validation(tiny_run())
    learned = posterior.load(fit(run, tmp_path / "run", progress=False))
    assert isinstance(learned, DiagGaussian)
    validation = build_examples(run, "validation")
    model, batches = build_model(run, validation), build_batches(run, validation, train=False)
    fitted = calibrate(model, learned.at_temperature(1.0), batches, samples=4, seed=run.seed)
    assert learned.temperature == fitted.temperature != 1.0


def test_the_best_is_kept_when_later_ones_are_worse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([{"nll": 0.5}, {"nll": 0.3}, {"nll": 0.4}])
    monkeypatch.setattr(Training, "evaluate", lambda self, batches: next(scores))
    fit(with_validation(tiny_run()), tmp_path / "run", progress=False)
    best = checkpoint_module.read(tmp_path / "run" / "checkpoint" / "best.safetensors")
    assert (best["training"]["step"], best["best"]) == (10, 0.3)


def test_lines_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tiny_run(), tmp_path / "run")
    assert "step 18/18  loss" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["seed", "lr"])
def test_a_checkpoint_of_another_run_is_refused(change: str, tmp_path: Path) -> None:
    run = tiny_run()
    other = replace(run, seed=9) if change == "seed" else replace(run, optim=replace(run.optim, lr=0.25))
    for name, one in (("mine", run), ("other", other)):
        fit(one, tmp_path / name, progress=False)
    newest = RunFolder(tmp_path / "other").checkpoints.paths()[-1]
    mine = tmp_path / "mine" / "checkpoint"
    (mine / "step-99999999.safetensors").write_bytes(newest.read_bytes())
    with pytest.raises(RunFolderError, match=rf"step-99999999.* is a checkpoint of another run: .*{change} was"):
        fit(run, tmp_path / "mine", resume=True, progress=False)
    (mine / "step-99999999.safetensors").unlink()
    fit(run, tmp_path / "mine", resume=True, progress=False)


def test_a_sealed_file_that_is_no_checkpoint_of_a_run(tmp_path: Path) -> None:
    fit(tiny_run(), tmp_path / "run", progress=False)
    path = RunFolder(tmp_path / "run").checkpoints.paths()[-1]
    checkpoint_module.write(path, {"step": 3})
    with pytest.raises(FileFormatError, match=r"does not describe a checkpoint of a run \(KeyError: 'best'\)"):
        fit(tiny_run(), tmp_path / "run", resume=True, progress=False)
