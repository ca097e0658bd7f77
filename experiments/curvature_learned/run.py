"""Does an optimizer learn the curvature of the loss? See README.md.

python -m experiments.curvature_learned.run            # resumes by reading results.jsonl
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from experiments.curvature_learned.hessian import hessian_diagonal
from experiments.no_tuning.ivon_options import Ivon
from experiments.no_tuning.library import Variational
from experiments.no_tuning.tasks import TASKS, Parts
from experiments.no_tuning.training import loss, score, train

HERE = Path(__file__).parent
SAMPLES = 64
SEEDS = range(3)
METHODS: dict[str, dict[str, Any]] = {  # name -> options of IVON; variational AdamW has none
    "ivon": {},
    "ivon-two": {"samples": 2},
    "ivon-pairs": {"samples": 2, "antithetic": True},
    "ivon-like-adamw": {"like": "adamw"},
    "ivon-like-adamw-pairs": {"like": "adamw", "samples": 2, "antithetic": True},
    "ivon-long": {},
    "vadamw": {},
}
LONG = 10  # times as many passes


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Spearman's; equal numbers share their mean rank. 0 where one of them is constant.

    >>> rank_correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 10.0, 100.0]))
    1.0
    """
    if len(first.unique()) == 1 or len(second.unique()) == 1:
        return 0.0
    return float(spearmanr(first.numpy(), second.numpy()).statistic)


def curvature_of(model: nn.Module, optimizer: Any) -> Tensor:
    """h or B v of all parameters in one vector, in the order of `hessian_diagonal`."""
    return torch.cat([optimizer.posterior_terms(param)[0].detach().flatten() for param in model.parameters()])


def run(task_name: str, method_name: str, seed: int) -> dict[str, Any]:
    """Train, and compare what was learned with the exact curvature, averaged over samples of the method's posterior."""
    task, start = TASKS[task_name], time.time()
    if method_name.endswith("-long"):
        task = replace(task, passes=task.passes * LONG)

    def method_of(model: nn.Module, parts: Parts) -> Any:
        job = {"seed": seed} | METHODS[method_name]
        return (Variational if method_name == "vadamw" else Ivon)(model, task, parts, job)

    parts = task.data(seed)
    model, method, finite = train(task, parts, seed, partial(lambda parts, model: method_of(model, parts), parts))
    if not finite:
        return {"diverged": True}
    assert isinstance(model, nn.Sequential)
    learned = curvature_of(model, method.optimizer)
    halves = []
    for half in range(2):
        total = torch.zeros_like(learned)
        for number in range(half * SAMPLES // 2, (half + 1) * SAMPLES // 2):
            method.show(1.0, number)
            total += hessian_diagonal(model, partial(loss, task), *parts.train)
        halves.append(total / (SAMPLES // 2))
    exact = (halves[0] + halves[1]) / 2
    alive = exact != 0
    sizes = [param.numel() for param in model.parameters()]
    names = [name for name, _ in model.named_parameters()]
    by_tensor = zip(names, learned.split(sizes), exact.split(sizes), strict=True)
    means = torch.cat([part.mean().expand(len(part)) for part in learned.split(sizes)])
    scores = score(task, model, method, parts, ("train", "validation"), 0.0, 1)
    return {
        "spearman": rank_correlation(learned, exact),
        "spearman_without_zeros": rank_correlation(learned[alive], exact[alive]),
        "spearman_of_tensor_means": rank_correlation(means, exact),
        "spearman_of_two_halves": rank_correlation(*halves),
        "by_tensor": {name: rank_correlation(mine, right) for name, mine, right in by_tensor},
        "zeros": 1.0 - float(alive.double().mean()),
        "level": float(learned.sum() / exact.sum()),
        "nll": {name: value["nll"] for name, value in scores.items()},
        "seconds": round(time.time() - start, 1),
    }


def table(results: list[dict[str, Any]]) -> str:
    """The README's table: means over seeds, the correlation of each seed in brackets."""
    lines = []
    for task, method in dict.fromkeys((result["task"], result["method"]) for result in results):
        rows = [result for result in results if (result["task"], result["method"]) == (task, method)]
        names = ("spearman", "spearman_without_zeros", "spearman_of_tensor_means", "spearman_of_two_halves", "level")
        whole, alive, means, halves, level = (fmean(row[name] for row in rows) for name in names)
        tensors = [fmean(row["by_tensor"][name] for row in rows) for name in rows[0]["by_tensor"]]
        each = ", ".join(f"{row['spearman']:.2f}" for row in rows)
        train, held_out = (fmean(row["nll"][part] for row in rows) for part in ("train", "validation"))
        lines.append(
            f"| {task} | {method} | **{whole:.2f}** ({each}) | {alive:.2f} | {min(tensors):.2f} to {max(tensors):.2f} "
            f"| {means:.2f} | {halves:.2f} | {level:.2g} | {train:.3f} | {held_out:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results.jsonl")
    parser.add_argument("--tasks", nargs="+", default=["digits-mlp", "concrete"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--table", action="store_true", help="print the README's table and stop")
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = options.results
    done = [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()] if path.exists() else []
    if options.table:
        print(table(done))
        return
    for seed in SEEDS:
        for task in options.tasks:
            for method in options.methods:
                job = {"task": task, "method": method, "seed": seed}
                if not any(job.items() <= result.items() for result in done):
                    with path.open("a", encoding="utf8") as file:
                        file.write(json.dumps(job | run(task, method, seed)) + "\n")


if __name__ == "__main__":
    main()
