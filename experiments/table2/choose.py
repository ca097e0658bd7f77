"""The learning rate of each method: the rule that was fixed before the final seeds.

Of 1/4, 1/2 and 1 times the rate that `varlearn.recipes.bayesian_comparison` gives the method, the one with the lowest
NLL on a fifth of the training images, held out, after a third of the epochs on the others, with seed 100. Nothing else
is chosen, and no test image is read. VAdamW sets its rate by itself. Choices are kept in choices.jsonl.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from varlearn.recipes.bayesian_comparison import Size, comparison
from varlearn.train import fit, predict_run, score_run
from varlearn.train.config import Evaluate

CHOICES = Path(__file__).parent / "choices.jsonl"
FACTORS = (1.0, 0.5, 0.25)
SEED = 100


def chosen_rate(method: str, size: Size, out: Path) -> float | None:
    """The learning rate of a method for a size of the comparison; tried out where no earlier call did.

    Args:
        method: its name.
        size: of the comparison.
        out: folder for the runs that are tried; they are removed.
    """
    run = comparison(method, seed=SEED, size=size)
    if run.optim.lr is None:
        return None
    key = {"network": size.network, "images": size.images, "epochs": size.epochs, "method": method}
    known = [json.loads(line) for line in CHOICES.read_text().splitlines()] if CHOICES.exists() else []
    for line in known:
        if {name: line[name] for name in key} == key:
            return line["lr"]
    tried: list[dict[str, Any]] = []
    for factor in FACTORS:
        lr = factor * run.optim.lr
        one = replace(
            run,
            optim=replace(run.optim, lr=lr),
            data=replace(run.data, ood=(), validation=float(size.images // 5)),
            train=replace(run.train, epochs=max(1, size.epochs // 3), checkpoint_every=0),
            evaluate=Evaluate(samples=8, subset=100),
        )
        folder = out / f"choose-{method}-{lr}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            fit(one, folder, progress=False)
            predict_run(folder, analyse=False, progress=False)
            nll = float(score_run(folder)["validation"]["averaged"]["nll"])
        except Exception as error:  # a rate at which the method diverges is not chosen
            print(f"{folder.name} failed: {error!r}", flush=True)
            nll = math.inf
        shutil.rmtree(folder, ignore_errors=True)
        tried.append({"lr": lr, "nll": nll if math.isfinite(nll) else str(nll)})
    finite = [(line["nll"], line["lr"]) for line in tried if not isinstance(line["nll"], str)]
    if not finite:
        raise RuntimeError(f"{method} failed at every learning rate that was tried, for the reasons above: {tried}")
    best = min(finite)[1]
    with CHOICES.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**key, "lr": best, "tried": tried}) + "\n")
    return best
