"""Gather the long runs of this experiment: scores by method, training loss and test loss against epochs.

    python experiments/table1_images/gather.py RUN ...

Writes long.json, and long.png and long.svg beside it. See README.md for the commands that make the runs.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from matplotlib import pyplot

from varlearn.train import RunFolder

HERE = Path(__file__).parent
TITLES = {"adamw": "AdamW", "sgd": "SGD", "ivon": "IVON"}
SETTINGS = ("lr", "weight_decay", "ess", "hess_init", "beta2")
SCORES = ("accuracy", "nll", "ece", "brier")


def summary(out: Path) -> dict[str, Any]:
    """A finished run: its settings, its scores, and how it got there."""
    folder = RunFolder(out)
    run = folder.read_run()
    scores = json.loads(folder.metrics.read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in folder.log.read_text(encoding="utf-8").splitlines()]
    names = SETTINGS if run.optim.name == "ivon" else SETTINGS[:2]
    kinds = ("mean", "averaged") if run.optim.name == "ivon" else ("mean",)
    return {
        "method": run.optim.name,
        "seed": run.seed,
        "epochs": run.train.epochs,
        "precision": run.train.precision,
        **{name: getattr(run.optim, name) for name in names},
        **{kind: {key: scores[kind][key] for key in (*SCORES, "examples", "ood")} for kind in kinds},
        "train_loss": [[line["epoch"], line["loss"]] for line in lines if "loss" in line],
        "test_nll": [[line["epoch"], line["eval"]["nll"]] for line in lines if "eval" in line],
        "last": next((line["ivon"] for line in reversed(lines) if "ivon" in line), None),
    }


def groups(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs that differ in their seeds alone: mean, standard deviation and values of every score."""
    names = ("method", "epochs", "precision", *SETTINGS)
    made = []
    for key in dict.fromkeys(tuple(run.get(name) for name in names) for run in runs):
        same = [run for run in runs if tuple(run.get(name) for name in names) == key]
        entry = {name: value for name, value in zip(names, key, strict=True) if value is not None}
        entry["seeds"] = [run["seed"] for run in same]
        for kind in ("mean", "averaged"):
            if kind in same[0]:
                entry[kind] = {score: spread([run[kind][score] for run in same]) for score in SCORES}
                entry[kind]["ood_auroc"] = {
                    name: spread([run[kind]["ood"][name]["auroc"] for run in same]) for name in same[0][kind]["ood"]
                }
        entry["train_loss"] = spread([statistics.fmean(loss for _, loss in run["train_loss"][-4:]) for run in same])
        made.append(entry)
    return made


def spread(values: list[float]) -> dict[str, Any]:
    """Mean and standard deviation; none of a single value."""
    std = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": std, "values": values}


def draw(runs: list[dict[str, Any]]) -> None:
    """Training loss (of the last 200 steps) and test loss against epochs, a line for each run."""
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    colours = {name: pyplot.get_cmap("tab10")(number) for number, name in enumerate(TITLES)}
    for run in runs:
        epochs, losses = zip(*run["train_loss"], strict=True)
        smooth = [statistics.fmean(losses[max(0, end - 4) : end]) for end in range(1, len(losses) + 1)]
        axes[0].plot(epochs, smooth, color=colours[run["method"]], linewidth=1)
        epochs, losses = zip(*run["test_nll"], strict=True)
        axes[1].plot(epochs, losses, "o-", color=colours[run["method"]], linewidth=1, markersize=4)
    axes[0].set(xlabel="epoch", ylabel="training loss, at samples for IVON", ylim=(0, 2.3))
    axes[1].set(xlabel="epoch", ylabel="test NLL, at the mean", ylim=(0.6, 1.8))
    for name in dict.fromkeys(run["method"] for run in runs):
        axes[0].plot([], [], color=colours[name], label=TITLES[name])
    axes[0].legend()
    for kind in ("png", "svg"):
        figure.savefig(HERE / f"long.{kind}", dpi=130, metadata={"Date": None} if kind == "svg" else None)


def main() -> None:
    """Read the runs that are named; write the results and the figure; print the table of the README."""
    runs = [summary(Path(out)) for out in sys.argv[1:]]
    found = groups(runs)
    (HERE / "long.json").write_text(json.dumps({"groups": found, "runs": runs}, indent=1) + "\n", encoding="utf-8")
    print("| | n | accuracy % | NLL | ECE | Brier | training loss |\n|---|---|---|---|---|---|---|")
    for entry in found:
        for kind in (kind for kind in ("mean", "averaged") if kind in entry):
            scores = entry[kind]
            name = TITLES[entry["method"]] + {"mean": ", mean", "averaged": ", averaged"}[kind] * (
                entry["method"] == "ivon"
            )
            cells = [cell(scores["accuracy"], 100.0, 1), *(cell(scores[key], 1.0, 3) for key in SCORES[1:])]
            print(f"| {name} | {len(entry['seeds'])} | {' | '.join(cells)} | {cell(entry['train_loss'], 1.0, 2)} |")
    draw(runs)


def cell(value: dict[str, Any], factor: float, digits: int) -> str:
    """Mean and standard deviation as the README has them."""
    text = f"{value['mean'] * factor:.{digits}f}"
    return text if value["std"] is None else f"{text} ± {value['std'] * factor:.{digits}f}"


if __name__ == "__main__":
    main()
