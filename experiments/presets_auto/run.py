"""Which settings suit short runs: IVON's around `presets.short_run`, beside AdamW and SGD; see README.md."""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from varlearn.data import load
from varlearn.recipes.scales import short_ivon
from varlearn.train import Data, Evaluate, Model, Optim, Run, Train, fit, predict_run, score_run

RESULTS = Path(__file__).with_name("results.json")
BATCH, TEST = 50, 5_000
TUNING_SEED = 100


class Case(NamedTuple):
    """A network on the first `examples` of a data set, for `epochs`."""

    data: str
    model: Model
    examples: int
    epochs: int
    augment: bool = False

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.epochs * self.examples // BATCH


CASES = {
    "mnist-mlp": Case("mnist", Model(name="mlp", hidden=(200, 200)), 2_000, 25),
    "mnist-lenet": Case("mnist", Model(name="lenet"), 2_000, 25),
    "mnist-lenet-long": Case("mnist", Model(name="lenet"), 5_000, 50),
    "digits-mlp": Case("digits", Model(name="mlp", hidden=(100, 100)), 1_000, 60),
    "cifar10-resnet20": Case("cifar10", Model(name="resnet20"), 2_000, 15, augment=True),
}
RATES = {"adamw": (3e-4, 1e-3, 3e-3), "sgd": (0.03, 0.1, 0.3)}


def baselines() -> list[Optim]:
    """AdamW and SGD, each with three learning rates."""
    adamw = [Optim(name="adamw", lr=lr, weight_decay=1e-2, beta2=0.999) for lr in RATES["adamw"]]
    return adamw + [Optim(name="sgd", lr=lr, weight_decay=2e-4) for lr in RATES["sgd"]]


def grid(case: Case) -> list[Optim]:
    """IVON: `presets.short_run`, then learning rate, ess per example, h0, and steps over which h averages."""
    base = short_ivon(case.examples, case.steps)
    values = itertools.product((0.1, 0.3, 0.5, 1.0), (10.0, 100.0), (0.01, 0.1), (0.1, 1.0))
    varied = [
        replace(base, lr=lr, ess=factor * case.examples, hess_init=h0, beta2=1 - 1 / (memory * case.steps))
        for lr, factor, h0, memory in values
    ]
    return [base, *(each for each in varied if each != base)]


def run(case: Case, optim: Optim, seed: int) -> dict[str, Any]:
    """Train and score: accuracy, NLL and ECE at the mean, and averaged for IVON. None where it diverged."""
    settings = Run(
        seed=seed,
        model=case.model,
        data=Data(name=case.data, subset=case.examples, batch_size=BATCH, augment=case.augment),
        optim=optim,
        train=Train(steps=case.steps, warmup=case.steps // 20, eval_every=0, checkpoint_every=0, log_every=case.steps),
        evaluate=Evaluate(samples=32, subset=min(TEST, len(load(case.data, split="test")))),
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            fit(settings, folder, progress=False)
        except RuntimeError as error:
            return {"diverged": str(error).split(";")[0]}
        predict_run(folder, progress=False)
        scores = score_run(folder)
        last = [json.loads(line) for line in Path(folder, "log.jsonl").read_text().splitlines()]
    kept = {where: {name: scores[where][name] for name in ("accuracy", "nll", "ece")} for where in scores
            if where in ("mean", "averaged")}  # fmt: skip
    ivon = [record["ivon"] for record in last if "ivon" in record]
    return kept | ({"hess_mean": ivon[-1]["hess_mean"], "std_mean": ivon[-1]["std_mean"]} if ivon else {})


def table(results: list[dict[str, Any]]) -> list[str]:
    """Rows of settings that were run with other seeds than the one they were chosen with."""
    rows = [
        "| | settings | n | accuracy % | NLL at the mean | NLL averaged | ECE averaged |",
        "|---|---|---|---|---|---|---|",
    ]
    kept = [entry for entry in results if entry["seed"] != TUNING_SEED and "mean" in entry]
    kept.sort(key=lambda entry: (entry["case"], describe(entry["optim"])))
    for (case, settings), group in itertools.groupby(kept, key=lambda entry: (entry["case"], describe(entry["optim"]))):
        entries = list(group)
        columns = [("averaged", "accuracy", 100.0, 1), ("mean", "nll", 1.0, 3), ("averaged", "nll", 1.0, 3),
                   ("averaged", "ece", 1.0, 3)]  # fmt: skip
        cells = [
            spread([factor * entry[where][name] for entry in entries], digits)
            for where, name, factor, digits in columns
        ]
        rows.append(f"| {case} | {settings} | {len(entries)} | {' | '.join(cells)} |")
    return rows


def describe(optim: dict[str, Any]) -> str:
    """The settings that vary, in words."""
    if optim["name"] != "ivon":
        return f"{optim['name']} {optim['lr']:g}"
    return f"ivon {optim['lr']:g}, ess {optim['ess']:g}, h0 {optim['hess_init']:g}, 1 - beta2 {1 - optim['beta2']:.1e}"


def spread(values: list[float], digits: int) -> str:
    """Mean and standard deviation."""
    text = f"{statistics.mean(values):.{digits}f}"
    return text + (f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=sorted(CASES), action="append", default=[])
    parser.add_argument("--seeds", type=int, nargs="+", default=[TUNING_SEED])
    parser.add_argument("--only", type=json.loads, action="append", help="settings as JSON, instead of the whole grid")
    parser.add_argument("--table", action="store_true", help="print what there is, and run nothing")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if options.table:
        print("\n".join(table(results)))
        return
    for name in options.case:
        case = CASES[name]
        chosen = [Optim(**each) for each in options.only or ()] or baselines() + grid(case)
        for optim, seed in ((optim, seed) for optim in chosen for seed in options.seeds):
            wanted = {"case": name, "seed": seed, "optim": json.loads(json.dumps(asdict(optim)))}
            if any(wanted.items() <= entry.items() for entry in results):
                continue
            results.append(wanted | run(case, optim, seed))
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
