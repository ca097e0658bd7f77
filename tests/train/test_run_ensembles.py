"""Ensembles of saved runs: what they predict, how they are weighted, what is refused, and how they go on."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from varlearn import posterior
from varlearn.cli import main
from varlearn.metrics import nll
from varlearn.posterior import DiagGaussian, Mixture, Point
from varlearn.recipes import recipe
from varlearn.train import (
    Run,
    RunFolder,
    RunFolderError,
    ensemble,
    fit,
    load_run_predictions,
    predict_run,
    score_run,
)
from varlearn.train.ensemble_file import read_ensemble


def tiny(method: str, seed: int, validation: float = 0.2, steps: int = 150) -> Run:
    run = recipe(f"digits-{method}", seed=seed)
    return replace(
        run,
        model=replace(run.model, hidden=(16,)),
        data=replace(run.data, subset=200, validation=validation),
        train=replace(run.train, steps=steps, eval_every=0, checkpoint_every=0),
        evaluate=replace(run.evaluate, samples=4),
    )


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("members")
    made = {}
    for method in ("sgd", "ivon"):
        for seed in range(2):
            out = folder / f"{method}{seed}"
            fit(tiny(method, seed), out, progress=False)
            predict_run(out, analyse=False, progress=False)
            made[out.name] = out
    return made


def averaged(out: Path) -> torch.Tensor:
    return load_run_predictions(out)["test"]["averaged"].log_probs


def test_a_deep_ensemble_averages_the_probabilities_of_its_members(members: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "both"
    ensemble([members["sgd0"], members["sgd1"]], out)
    predict_run(out, progress=False)
    scores = score_run(out)
    one, other = (averaged(members[name]).double().exp() for name in ("sgd0", "sgd1"))
    assert torch.allclose(averaged(out).double().exp(), (one + other) / 2, atol=1e-6)
    targets = load_run_predictions(out)["test"]["averaged"].targets
    assert scores["averaged"]["nll"] == pytest.approx(nll(((one + other) / 2).log(), targets), abs=1e-6)
    learned = posterior.load(out / "posterior.safetensors")
    assert isinstance(learned, Mixture)
    assert all(isinstance(part, Point) for part in learned.components)
    assert read_ensemble(out / "ensemble.json").label == "Deep ensemble of 2 x SGD"


def test_multi_ivon_is_a_mixture_of_the_members_gaussians(tmp_path: Path) -> None:
    out = tmp_path / "multi"
    given = {}
    for seed in range(2):
        given[f"ivon{seed}"] = tmp_path / f"ivon{seed}"
        fit(tiny("ivon", seed, validation=0.0), given[f"ivon{seed}"], progress=False)
    path = ensemble(list(given.values()), out)
    learned = posterior.load(path)
    assert isinstance(learned, Mixture)
    assert learned.weights == (0.5, 0.5)
    for part, name in zip(learned.components, ("ivon0", "ivon1"), strict=True):
        own = posterior.load(given[name] / "posterior.safetensors")
        assert isinstance(part, DiagGaussian)
        assert isinstance(own, DiagGaussian)
        assert all(torch.equal(part.hess[key], own.hess[key]) for key in own.hess)
        assert part.temperature == own.temperature
    predict_run(out, progress=False)
    assert len(load_run_predictions(out)["test"]["averaged"].sample_weights) == 8  # 4 of each


@pytest.mark.parametrize("rule", ["validation", "loo"])
def test_learned_weights_are_no_worse_than_equal_ones_where_they_were_learned(
    members: dict[str, Path], tmp_path: Path, rule: str
) -> None:
    out = tmp_path / rule
    ensemble([members["ivon0"], members["ivon1"]], out, weights=rule)  # type: ignore[arg-type]
    made = read_ensemble(out / "ensemble.json")
    assert made.held_out_nll is not None
    assert made.held_out_nll["learned"] <= made.held_out_nll["equal"]
    assert sum(made.weights) == pytest.approx(1.0)


def test_a_useless_member_loses_its_weight(members: dict[str, Path], tmp_path: Path) -> None:
    poor = tmp_path / "poor"
    fit(tiny("sgd", 5, steps=1), poor, progress=False)
    predict_run(poor, analyse=False, progress=False)
    out = tmp_path / "out"
    ensemble([members["sgd0"], poor], out, weights="validation")
    made = read_ensemble(out / "ensemble.json")
    assert made.weights[0] > 0.9
    assert made.held_out_nll is not None
    assert made.held_out_nll["learned"] < made.held_out_nll["equal"]


def test_methods_may_differ_and_ensembles_are_dissolved(members: dict[str, Path], tmp_path: Path) -> None:
    ensemble([members["sgd0"], members["sgd1"]], tmp_path / "inner")
    path = ensemble([tmp_path / "inner", members["ivon0"]], tmp_path / "outer")
    assert posterior.load(path).weights == (0.25, 0.25, 0.5)  # type: ignore[union-attr]
    made = read_ensemble(tmp_path / "outer" / "ensemble.json")
    assert made.methods == ("sgd", "sgd", "ivon")
    assert made.label == "Mixture of 2 x SGD, IVON"
    predict_run(tmp_path / "outer", progress=False)
    assert score_run(tmp_path / "outer")["averaged"]["accuracy"] > 0.5


def test_members_with_dropout_keep_their_masks_and_do_not_mix_with_others(
    members: dict[str, Path], tmp_path: Path
) -> None:
    for seed in range(2):
        fit(tiny("mc-dropout", seed), tmp_path / str(seed), progress=False)
        predict_run(tmp_path / str(seed), analyse=False, progress=False)
    given = [tmp_path / "0", tmp_path / "1"]
    ensemble(given, tmp_path / "both")
    predict_run(tmp_path / "both", progress=False)
    found = load_run_predictions(tmp_path / "both")["test"]
    assert len(found["averaged"].sample_weights) == 8  # 4 masks of each
    assert not torch.allclose(found["averaged"].log_probs, found["mean"].log_probs)
    both = torch.stack([averaged(one).double().exp() for one in given]).mean(0)
    assert (averaged(tmp_path / "both").double().exp() - both).abs().mean() < 0.03  # other masks, the same mixture
    with pytest.raises(ValueError, match="mc-dropout .* change the network in different ways"):
        ensemble([members["sgd0"], tmp_path / "0"], tmp_path / "out")


def test_it_goes_on_where_it_was_killed_and_refuses_other_members(members: dict[str, Path], tmp_path: Path) -> None:
    out, given = tmp_path / "out", [members["sgd0"], members["sgd1"]]
    first = ensemble(given, out).read_bytes()
    (out / "ensemble.json").unlink()  # the file that is written last
    assert ensemble(given, out).read_bytes() == first
    before = (out / "posterior.safetensors").stat().st_mtime_ns
    ensemble(given, out)
    assert (out / "posterior.safetensors").stat().st_mtime_ns == before
    with pytest.raises(RunFolderError, match="holds another ensemble, Deep ensemble of 2 x SGD"):
        ensemble([members["sgd0"], members["ivon0"]], out)
    with pytest.raises(RunFolderError, match="holds an ensemble, which is not trained"):
        fit(tiny("sgd", 0), out, resume=True, progress=False)
    with pytest.raises(RunFolderError, match="what is in it is no ensemble"):
        ensemble(given, members["ivon0"])


def test_a_damaged_member_list_is_noticed(members: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    ensemble([members["sgd0"], members["sgd1"]], out)
    text = (out / "ensemble.json").read_text()
    (out / "ensemble.json").write_text(text.replace('"equal"', '"evenly"'))
    with pytest.raises(ValueError, match="does not fit its checksum"):
        predict_run(out, progress=False)


def test_members_of_another_network_or_other_data_are_refused_by_name(members: dict[str, Path], tmp_path: Path) -> None:
    run = tiny("sgd", 0)
    for name, other, message in (
        ("wide", replace(run, model=replace(run.model, hidden=(20,))), r"model.hidden=\(20,\)"),
        ("fewer", replace(run, data=replace(run.data, subset=100)), "data.subset=100"),
    ):
        fit(replace(other, train=replace(run.train, steps=2)), tmp_path / name, progress=False)
        with pytest.raises(ValueError, match=message):
            ensemble([members["sgd0"], tmp_path / name], tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_wrong_requests(members: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="at least 2"):
        ensemble([members["sgd0"]], out)
    with pytest.raises(ValueError, match="given twice"):
        ensemble([members["sgd0"], members["sgd0"]], out)
    with pytest.raises(ValueError, match="needs posteriors with a diagonal variance"):
        ensemble([members["sgd0"], members["sgd1"]], out, weights="loo")
    with pytest.raises(ValueError, match="weights='best'"):
        ensemble([members["sgd0"], members["sgd1"]], out, weights="best")  # type: ignore[arg-type]
    with pytest.raises(RunFolderError, match="holds no run"):
        ensemble([members["sgd0"], tmp_path], out)
    unfinished = tmp_path / "unfinished"
    shutil.copytree(members["sgd1"], unfinished)
    (unfinished / "posterior.safetensors").unlink()
    with pytest.raises(RunFolderError, match="not finished"):
        ensemble([members["sgd0"], unfinished], out)
    plain = tmp_path / "plain"
    for seed in range(2):
        fit(tiny("sgd", seed, validation=0.0, steps=2), plain / str(seed), progress=False)
    with pytest.raises(ValueError, match="data.validation=0"):
        ensemble([plain / "0", plain / "1"], out, weights="validation")
    assert not out.exists()


def test_from_the_command_line_to_a_page(
    members: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["ensemble", str(members["ivon0"]), str(members["ivon1"]), "--out", str(out)]
    assert main([*words, "--quiet"]) == 0
    shown = capsys.readouterr()
    assert "Multi-IVON of 2; weights 0.500, 0.500" in shown.err
    assert json.loads((out / "metrics.json").read_text())["averaged"]["accuracy"] > 0.5
    assert main(["report", str(out)]) == 0
    assert "Multi-IVON of 2" in (out / "report.html").read_text(encoding="utf-8")
    learned = [*words[:3], "--weights", "validation", "--out", str(tmp_path / "learned"), "--quiet"]
    assert main(learned) == 0
    assert "with equal weights" in capsys.readouterr().err
    assert main(["ensemble", str(members["ivon0"]), "--out", str(tmp_path / "one")]) == 2
    assert not (tmp_path / "one").exists()
    assert RunFolder(out).read_run().recipe == "ensemble of digits-ivon"
