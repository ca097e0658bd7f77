"""Leave-one-out losses while training: what the log holds, on which examples, when training stops, after a resume."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import varlearn
from varlearn import data, posterior
from varlearn.data.batches import Batches
from varlearn.posterior import DiagGaussian
from varlearn.recipes import recipe
from varlearn.train import Run, RunFolder, fit
from varlearn.train.build import build_model
from varlearn.train.checkpoint import read
from varlearn.train.training import Training


def run_of(method: str = "ivon", **train: Any) -> Run:
    """60 digits in batches of 20, three epochs, which are nine steps."""
    run = recipe(f"digits-{method}")
    data_of_run = replace(run.data, subset=60, batch_size=20)
    return replace(run, data=data_of_run, train=replace(run.train, steps=9, **{"loo_every": 0, **train}))


def log_of(out: Path, split: str = "leave-one-out") -> list[dict[str, Any]]:
    lines = (out / "log.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line)).get("split") == split]


@pytest.mark.parametrize("method", ["ivon", "vadamw", "adamw", "sgd"])
def test_the_log_has_the_leave_one_out_loss_of_the_whole_training_set(method: str, tmp_path: Path) -> None:
    run = run_of(method, loo_examples=1_000)
    fit(run, tmp_path / "run", progress=False)
    records = log_of(tmp_path / "run")
    assert [record["step"] for record in records] == [3, 6, 9]
    assert records[-1]["eval"]["examples"] == 60
    examples = data.load("digits", "train").first(60)
    model = build_model(run, examples)
    state = read(RunFolder(tmp_path / "run").checkpoints.paths()[-1])["training"]
    model.load_state_dict(state["model"])
    q = posterior.load(tmp_path / "run" / "posterior.safetensors", model)
    if not isinstance(q, DiagGaussian):  # the formulas of the paper, from the optimizer's state
        decay, mean = run.optim.weight_decay, dict(model.named_parameters())
        names, moments = list(mean), state["optimizer"]["state"]
        if method == "sgd":
            hess = {name: torch.ones_like(value) for name, value in mean.items()}
        else:
            places = [place for group in state["optimizer"]["param_groups"] for place in group["params"]]
            second = {place: moments[place]["exp_avg_sq"] for place in places}
            debias = 1 - run.optim.beta2**9
            hess = {name: (second[number] / debias).sqrt() for number, name in enumerate(names)}
        q = DiagGaussian({name: value.detach() for name, value in mean.items()}, hess, 60.0, decay)
    q = replace(q, ess=60.0, temperature=1.0)
    found = varlearn.sensitivity(model.eval(), q, Batches(examples, 50))
    assert records[-1]["eval"]["nll"] == pytest.approx(found.loo_loss.double().mean().item(), rel=1e-5)
    assert records[-1]["eval"]["train_nll"] == pytest.approx(found.loss.double().mean().item(), rel=1e-5)


def test_measuring_changes_nothing_of_the_training(tmp_path: Path) -> None:
    weights = []
    for every in (None, 0, 2):
        out = tmp_path / str(every)
        path = fit(run_of(loo_every=every), out, progress=False)
        weights.append(torch.cat([value.flatten() for value in posterior.load(path).mean.values()]))
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    assert not log_of(tmp_path / "None")
    assert [record["step"] for record in log_of(tmp_path / "2")] == [2, 4, 6, 8, 9]


def test_the_default_costs_a_tenth_and_takes_the_same_examples_each_time(tmp_path: Path) -> None:
    fit(run_of(loo_every=0), tmp_path / "run", progress=False)
    assert {record["eval"]["examples"] for record in log_of(tmp_path / "run")} == {1}  # 60 / 10 / 4
    tracker = read(RunFolder(tmp_path / "run").checkpoints.paths()[-1])["loo"]["tracker"]
    assert tracker["counts"].tolist() == [3]


def test_the_diagonal_takes_fewer_examples_the_more_classes_there_are(tmp_path: Path) -> None:
    run = run_of(loo_diagonal=True)
    run = replace(run, data=replace(run.data, subset=1_000, batch_size=500), train=replace(run.train, steps=2))
    fit(run, tmp_path / "run", progress=False)
    assert {record["eval"]["examples"] for record in log_of(tmp_path / "run")} == {10}  # 1,000 / 10 / 10 classes


def test_a_resumed_run_has_the_same_log_and_running_means(tmp_path: Path) -> None:
    run = run_of(loo_examples=20, checkpoint_every=3)
    fit(run, tmp_path / "whole", progress=False)
    with pytest.MonkeyPatch.context() as patch:
        update = Training.update

        def failing(training: Training) -> None:
            if training.step == 4:
                raise RuntimeError("power cut")
            update(training)

        patch.setattr(Training, "update", failing)
        with pytest.raises(RuntimeError, match="power cut"):
            fit(run, tmp_path / "parts", progress=False)
    fit(run, tmp_path / "parts", resume=True, progress=False)
    for name in ("log.jsonl", "posterior.safetensors"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    newest = [RunFolder(tmp_path / name).checkpoints.paths()[-1] for name in ("whole", "parts")]
    trackers = [read(path)["loo"]["tracker"] for path in newest]
    assert trackers[0]["counts"].tolist() == [3] * 20
    for name in ("score", "loo_loss", "loo_probs"):
        assert torch.equal(trackers[0]["means"][name], trackers[1]["means"][name])


def test_training_ends_when_the_leave_one_out_loss_rises_and_returns_to_the_lowest(tmp_path: Path) -> None:
    run = run_of("sgd", loo_every=1, loo_examples=60, loo_patience=2)
    run = replace(run, optim=replace(run.optim, lr=2.0), train=replace(run.train, steps=60, schedule="constant"))
    path = fit(run, tmp_path / "run", progress=False)
    records = log_of(tmp_path / "run")
    losses = [record["eval"]["nll"] for record in records]
    lowest = min(range(len(losses)), key=lambda place: losses[place])
    assert len(records) == lowest + 3 < 60
    checkpoints = RunFolder(tmp_path / "run").checkpoints
    best = read(checkpoints.best_by("loo"))
    assert best["training"]["step"] == records[lowest]["step"]
    for name, value in posterior.load(path).mean.items():
        assert torch.equal(value, best["training"]["model"][name])
    before = path.read_bytes()
    fit(run, tmp_path / "run", resume=True, progress=False)  # nothing is left to do
    assert path.read_bytes() == before


def test_snapshots_are_kept_besides_the_newest_two(tmp_path: Path) -> None:
    fit(run_of(loo_every=None, snapshots=(1, 2)), tmp_path / "run", progress=False)
    checkpoints = RunFolder(tmp_path / "run").checkpoints
    assert checkpoints.snapshots() == [1, 2]
    assert [read(checkpoints.snapshot(epoch))["training"]["step"] for epoch in (1, 2)] == [3, 6]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loo_every": -1}, "train.loo_every=-1 must be >= 0"),
        ({"loo_every": None, "loo_patience": 3}, "train.loo_patience=3 needs leave-one-out losses"),
        ({"loo_examples": 0}, "train.loo_examples=0 must be >= 1"),
        ({"snapshots": (0,)}, r"train.snapshots=\(0,\) must be epochs >= 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_of(**settings)


def test_adamw_without_weight_decay_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = run_of("adamw")
    run = replace(run, optim=replace(run.optim, weight_decay=0.0))
    with pytest.raises(ValueError, match="gives no precision"):
        fit(run, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
