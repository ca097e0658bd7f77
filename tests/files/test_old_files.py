"""Files of version 0.1 still load, with the values that it wrote, and its runs go on to the end that it reached."""

import json
import platform
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from tests.fixtures.v0_1 import cases
from varlearn.posterior import DiagGaussian, LowRankGaussian, Mixture, Point, load
from varlearn.prediction import load_predictions
from varlearn.report import write_report
from varlearn.train import RunFolder, fit, load_run_predictions, predict_run, score_run
from varlearn.train.environment import environment

# Version 0.1 did not warn of clipping with rescaling.
pytestmark = pytest.mark.filterwarnings("ignore:clip_radius=:UserWarning")

SAMPLES = load_file(cases.HERE / "posteriors" / "samples.safetensors")


def same_machine() -> bool:
    """Whether processor and packages are those that wrote the files: on others a sum may round differently."""
    stored = json.loads((cases.HERE / "runs" / "ivon" / "finished" / "env.json").read_text())
    now = environment(torch.device("cpu"))
    now["packages"].pop("varlearn"), stored["packages"].pop("varlearn")
    kept = ("cpu", "cpu_capability", "onednn_max_cpu_isa", "packages", "threads")
    compiler = shutil.which("cc") is not None and platform.system() == "Linux"  # for the native kernel
    return compiler and all(stored[key] == now[key] for key in kept)


def assert_same(found: Any, stored: Any, where: str = "") -> None:
    """The same numbers, to the bit on the machine that wrote them."""
    if isinstance(stored, Tensor):
        if same_machine():
            assert found.dtype == stored.dtype, where
            assert torch.equal(found, stored), where
        else:
            torch.testing.assert_close(found, stored, rtol=1e-4, atol=1e-6)
    elif isinstance(stored, dict):
        assert set(stored) <= set(found), where  # later versions may say more
        for key, value in stored.items():
            assert_same(found[key], value, f"{where}/{key}")
    elif isinstance(stored, (list, tuple)):
        assert len(found) == len(stored), where
        for number, (one, other) in enumerate(zip(found, stored, strict=True)):
            assert_same(one, other, f"{where}/{number}")
    elif isinstance(stored, float) and not same_machine():
        assert found == pytest.approx(stored, rel=1e-4), where
    else:
        assert found == stored, where


@pytest.mark.parametrize("name", cases.posteriors())
def test_posteriors(name: str) -> None:
    found, made = load(cases.HERE / "posteriors" / f"{name}.safetensors"), cases.posteriors()[name]
    assert type(found) is type(made)
    parts = zip(found.components, made.components, strict=True) if isinstance(found, Mixture) else [(found, made)]
    for one, other in parts:
        for part in ("mean", "hess", "var", "deviations", "prior_mean", "fixed", "ess", "weight_decay", "tied"):
            assert_same(getattr(one, part, None), getattr(other, part, None), part)
    if isinstance(found, Mixture):
        assert found.weights == made.weights
    stored = {key.removeprefix(f"{name}/"): value for key, value in SAMPLES.items() if key.startswith(f"{name}/")}
    assert stored
    assert_same(found.sample(cases.SEED), stored)


def test_every_kind_of_posterior_is_stored() -> None:
    assert {type(made) for made in cases.posteriors().values()} == {DiagGaussian, LowRankGaussian, Mixture, Point}


@pytest.mark.parametrize("name", cases.predictions())
def test_predictions(name: str) -> None:
    found, made = load_predictions(cases.HERE / "predictions" / f"{name}.safetensors"), cases.predictions()[name]
    assert type(found) is type(made)
    for field in fields(made):
        assert_same(getattr(found, field.name), getattr(made, field.name), field.name)


def stored_run(method: str, name: str, tmp_path: Path) -> Path:
    """A copy, since reading a run may leave a lock in its folder."""
    return Path(shutil.copytree(cases.HERE / "runs" / method / name, tmp_path / name))


def log_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in RunFolder(out).log.read_text().splitlines()]


@pytest.mark.parametrize("method", cases.METHODS)
def test_a_stopped_run_goes_on_to_the_stored_end(method: str, tmp_path: Path) -> None:
    finished, stopped = stored_run(method, "finished", tmp_path), stored_run(method, "stopped", tmp_path)
    assert RunFolder(stopped).read_run() == cases.run(method)
    fit(cases.run(method), stopped, resume=True, progress=False)
    found, stored = load(RunFolder(stopped).posterior), load(RunFolder(finished).posterior)
    assert type(found) is type(stored) is (DiagGaussian if method == "ivon" else Point)
    for part in ("mean", "hess", "ess", "weight_decay"):
        assert_same(getattr(found, part, None), getattr(stored, part, None), part)
    states = [RunFolder(out).checkpoints.newest().state for out in (stopped, finished)]
    assert states[0] is not None
    assert states[1] is not None
    assert_same(states[0]["training"]["model"], states[1]["training"]["model"])
    assert_same(states[0]["training"]["optimizer"]["state"], states[1]["training"]["optimizer"]["state"])
    assert_same(log_of(stopped), log_of(finished))


@pytest.mark.parametrize("method", cases.METHODS)
def test_the_later_stages_of_a_finished_run(method: str, tmp_path: Path) -> None:
    out = stored_run(method, "finished", tmp_path)
    metrics = json.loads(RunFolder(out).metrics.read_text())
    stored = load_run_predictions(out)
    assert_same(score_run(out), metrics)
    predict_run(out, progress=False)
    again = load_run_predictions(out)
    for kind in ("mean", "averaged"):
        assert_same(again["test"][kind].log_probs, stored["test"][kind].log_probs)
    assert_same(score_run(out), metrics)
    assert_same(json.loads(RunFolder(out).metrics.read_text()), metrics)


def test_a_report_of_stored_runs(tmp_path: Path) -> None:
    page = write_report([cases.HERE / "runs" / method / "finished" for method in cases.METHODS], tmp_path).read_text()
    for method in cases.METHODS:
        metrics = json.loads((cases.HERE / "runs" / method / "finished" / "metrics.json").read_text())
        assert f"{metrics['mean']['nll']:.4f}" in page


@pytest.mark.parametrize("case", cases.OPTIMIZERS)
def test_optimizer_states(case: str) -> None:
    folder = cases.HERE / "optimizers"
    stored = torch.load(folder / f"{case}.pt", weights_only=True)
    later = torch.load(folder / f"{case}_two_steps_later.pt", weights_only=True)
    net = cases.network(cases.OPTIMIZERS[case])
    opt = cases.optimizer(case, net)
    net.load_state_dict(stored["model"])
    opt.load_state_dict(stored["optimizer"])
    assert_same(opt.state_dict()["state"], stored["optimizer"]["state"])
    for found, saved in zip(opt.param_groups, stored["optimizer"]["param_groups"], strict=True):
        assert_same({key: found[key] for key in ("lr", "ess", "betas", "weight_decay", "clip_radius")}, {
            key: saved[key] for key in ("lr", "ess", "betas", "weight_decay", "clip_radius")
        })  # fmt: skip
    cases.steps(net, opt, 3, 2)
    assert_same(net.state_dict(), later["model"])
    assert_same(opt.state_dict()["state"], later["optimizer"]["state"])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized:UserWarning")
def test_a_distributed_checkpoint() -> None:
    net = cases.network()
    opt = cases.optimizer("float32", net)
    state = {"model": get_model_state_dict(net), "optimizer": get_optimizer_state_dict(net, opt)}
    dcp.load(state, checkpoint_id=cases.HERE / "optimizers" / "distributed")
    set_model_state_dict(net, state["model"])
    set_optimizer_state_dict(net, opt, state["optimizer"])
    stored = torch.load(cases.HERE / "optimizers" / "float32.pt", weights_only=True)
    assert_same(net.state_dict(), stored["model"])
    assert_same(opt.state_dict()["state"], stored["optimizer"]["state"])
    cases.steps(net, opt, 3, 2)
    later = torch.load(cases.HERE / "optimizers" / "float32_two_steps_later.pt", weights_only=True)
    assert_same(net.state_dict(), later["model"])
