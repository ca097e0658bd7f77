"""Gather the runs of this experiment: learning rates by their score on bytes kept apart, curves, final scores, bf16.

    python experiments/gpt2_small/gather.py RUN ...

Writes results.json, and curves.png and curves.svg beside it. See README.md for the commands that make the runs.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from matplotlib import pyplot

from varlearn import posterior
from varlearn.metrics import nll_per_token
from varlearn.posterior import DiagGaussian
from varlearn.prediction import predict_tokens
from varlearn.train import RunFolder
from varlearn.train.build import build_batches, build_examples, build_model

HERE = Path(__file__).parent
TITLES = {"ivon": "IVON", "adamw": "AdamW"}


def chosen_by(folder: RunFolder) -> float:
    """NLL per byte, at the mean, of as many bytes behind the scored ones: what learning rates are chosen by."""
    cached = folder.out / "tuning.json"
    if not cached.exists():
        run = folder.read_run()
        size = run.evaluate.subset
        assert size is not None
        test = build_examples(replace(run, evaluate=replace(run.evaluate, subset=2 * size)), "test")
        later = replace(test, inputs=test.inputs[size:])
        model = build_model(run, later)
        learned = posterior.load(folder.posterior, model)
        point = learned.at_mean() if isinstance(learned, DiagGaussian) else learned
        found = predict_tokens(model, point, build_batches(run, later, train=False), 1, progress=False)
        cached.write_text(json.dumps(nll_per_token(found.log_probs)), encoding="utf-8")
    return json.loads(cached.read_text(encoding="utf-8"))


def summary(out: Path) -> dict[str, Any]:
    """A run: its settings, its curves, and its scores if it is finished."""
    folder = RunFolder(out)
    run = folder.read_run()
    lines = [json.loads(line) for line in folder.log.read_text(encoding="utf-8").splitlines()]
    found: dict[str, Any] = {
        "method": run.optim.name,
        "lr": run.optim.lr,
        "ess": run.optim.ess,
        "hess_init": run.optim.hess_init,
        "seed": run.seed,
        "precision": run.train.precision,
        "steps": lines[-1]["step"],
        "of": run.train.steps,
        "curve": [[line["step"], line["eval"]["nll"], line["eval"]["perplexity"]] for line in lines if "eval" in line],
        "loss": [[line["step"], line["loss"]] for line in lines if "loss" in line],
    }
    if run.optim.name != "ivon":
        del found["ess"], found["hess_init"]
    if folder.metrics.exists():
        found["tuning_nll"] = chosen_by(folder)
        scores = json.loads(folder.metrics.read_text(encoding="utf-8"))
        found |= {kind: scores[kind] for kind in (("mean", "averaged") if run.optim.name == "ivon" else ("mean",))}
    return found


def pairs_nll(folder: RunFolder) -> float:
    """NLL per byte of the counts of byte pairs in the training text, 0.01 added to each: what little learning gives."""
    run = folder.read_run()
    train, test = (build_examples(run, split).inputs for split in ("train", "test"))
    assert isinstance(train, torch.Tensor)
    assert isinstance(test, torch.Tensor)
    train, test = train.long(), test.long()
    counts = torch.bincount(256 * train[:-1] + train[1:], minlength=256**2).view(256, 256) + 0.01
    return -(counts / counts.sum(1, keepdim=True))[test[:-1], test[1:]].log().mean().item()


def groups(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Finished float32 runs by settings: mean and standard deviation over seeds."""
    names = ("method", "lr", "hess_init", "ess", "of")
    keys = sorted({tuple(run.get(name) for name in names) for run in finished(runs)}, key=str)
    made = []
    for key in keys:
        same = [run for run in finished(runs) if tuple(run.get(name) for name in names) == key]
        entry: dict[str, Any] = dict(zip(names, key, strict=True))
        entry |= {"seeds": [run["seed"] for run in same], "tuning_nll": spread([run["tuning_nll"] for run in same])}
        for kind in ("mean", "averaged"):
            if kind in same[0]:
                entry[kind] = {key: spread([run[kind][key] for run in same]) for key in ("nll", "perplexity")}
        made.append(entry)
    return made


def finished(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs in float32 that have been scored."""
    return [run for run in runs if run["precision"] == "fp32" and "mean" in run]


def spread(values: list[float]) -> dict[str, float | None]:
    """Mean and standard deviation; none of a single value."""
    return {"mean": statistics.fmean(values), "std": statistics.stdev(values) if len(values) > 1 else None}


def precisions(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each bf16 run beside the float32 run that differs in nothing else, over the steps that both have."""
    made = []
    for low in (run for run in runs if run["precision"] == "bf16"):
        for full in (run for run in runs if run["precision"] == "fp32"):
            if all(low.get(key) == full.get(key) for key in ("method", "lr", "hess_init", "ess", "seed", "of")):
                exact = {step: nll for step, nll, _ in full["curve"]}
                pairs = [[step, exact[step], nll] for step, nll, _ in low["curve"] if step in exact]
                losses = dict(map(tuple, full["loss"]))
                trained = [[step, losses[step], loss] for step, loss in low["loss"] if step in losses]
                names = {key: low[key] for key in ("method", "lr", "seed")}
                made.append(
                    {
                        **names,
                        "steps": low["steps"],
                        "eval_nll": pairs,
                        "loss": trained,
                        "largest_eval_gap": max((abs(a - b) for _, a, b in pairs), default=None),
                        "largest_loss_gap": max((abs(a - b) for _, a, b in trained), default=None),
                    }
                )
    return made


def draw(runs: list[dict[str, Any]]) -> None:
    """Validation perplexity of the longest runs against steps; bf16 beside float32 if there is any."""
    pairs = [pair for pair in precisions(runs) if pair["eval_nll"]]
    figure, axes = pyplot.subplots(
        1, 2 if pairs else 1, figsize=(10 if pairs else 6, 4), squeeze=False, constrained_layout=True
    )
    colours = pyplot.get_cmap("tab10").colors  # pyright: ignore[reportAttributeAccessIssue]
    names: dict[tuple[str, float], int] = {}
    longest = max(run["of"] for run in finished(runs))
    for run in (run for run in finished(runs) if run["of"] == longest):
        key = (run["method"], run["lr"])
        label = None if key in names else f"{TITLES[run['method']]}, lr {run['lr']:g}"
        number = names.setdefault(key, len(names))
        steps, values = [row[0] for row in run["curve"]], [row[2] for row in run["curve"]]
        axes[0, 0].plot(steps, values, marker="os^vD"[number], markersize=4, color=colours[number], label=label)
    axes[0, 0].set(title="float32", xlabel="step", ylabel="validation perplexity per byte, at the mean")
    axes[0, 0].legend()
    for number, pair in enumerate(pairs):
        for column, (name, style) in enumerate((("float32", "-o"), ("bf16 autocast", "--x")), 1):
            steps, values = [row[0] for row in pair["eval_nll"]], [row[column] for row in pair["eval_nll"]]
            label = f"{TITLES[pair['method']]}, {name}"
            axes[0, 1].plot(steps, values, style, markersize=6, color=colours[number], label=label)
    if pairs:
        axes[0, 1].set(title="bf16 beside float32", xlabel="step", ylabel="validation NLL per byte, at the mean")
        axes[0, 1].legend()
    for kind in ("png", "svg"):
        figure.savefig(HERE / f"curves.{kind}", dpi=130, metadata={"Date": None} if kind == "svg" else None)


def main() -> None:
    """Read the runs that are named; write the results and the figure; print the groups."""
    runs = [summary(Path(out)) for out in sys.argv[1:]]
    pairs = pairs_nll(RunFolder(Path(sys.argv[1])))
    found = {"groups": groups(runs), "bf16": precisions(runs), "byte_pairs_nll": pairs, "runs": runs}
    (HERE / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in found.items() if name != "runs"}, indent=1))
    draw(runs)


if __name__ == "__main__":
    main()
