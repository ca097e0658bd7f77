"""The 24 traps that implementations of IVON fall into, run on ivon-opt 0.1.3 and on varlearn side by side.

    python -m benchmarks.traps            # prints the table, writes results/traps.json and results/traps.md

Every cell is an observation: a probe is run on both packages, and a rule that knows neither decides whether what came
out is right. A probe that a package does not survive reports its exception.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import ivon
import torch

import varlearn
from benchmarks import results
from benchmarks import trap_probes as probes
from benchmarks.environment import describe
from benchmarks.trap_probes import Package

PACKAGES = (Package("ivon-opt", ivon.IVON), Package("varlearn", varlearn.IVON))


class Trap(NamedTuple):
    """A probe, and what its observation should be."""

    title: str
    measured: str
    expected: str
    probe: Callable[[Package], Any]
    right: Callable[[Any], bool]


# Rules


def close_to(expected: float, tolerance: float = 1e-3) -> Callable[[Any], bool]:
    return lambda seen: isinstance(seen, float) and math.isclose(seen, expected, rel_tol=tolerance, abs_tol=tolerance)


def is_works(seen: Any) -> bool:
    return seen == "works"


def is_clear_error(seen: Any) -> bool:
    return str(seen).startswith("RuntimeError") and ("sample" in seen or "block" in seen)


def is_near_adamw(seen: Any) -> bool:
    """At most 5 times AdamW fused's step, and one and a half vectors more."""
    ratio, vectors, reference = (float(number) for number in re.findall(r"\d+\.\d+", str(seen)))
    return ratio <= 5.0 and vectors <= reference + 1.5


TRAPS = [
    Trap(
        "squared-gradient estimator", "ĥ of a gradient of 2 at ess = 1000", "4", probes.squared_gradient, close_to(4.0)
    ),
    Trap(
        "exception inside the block",
        "largest distance from the mean afterwards",
        "0",
        probes.exception,
        close_to(0.0, 0.0),
    ),
    Trap("resume", "first resumed step over the uninterrupted one", "1", probes.resume, close_to(1.0)),
    Trap("copies of the optimizer", "deepcopy and pickle go on training", "works", probes.copying, is_works),
    Trap("`p.grad is None`", "a step with an unused parameter", "works", probes.no_gradient, is_works),
    Trap("frozen parameters", "largest change of a frozen weight", "0", probes.frozen, close_to(0.0, 0.0)),
    Trap(
        "`step()` without a sample",
        "what it says",
        "RuntimeError that names the block",
        probes.step_without_sample,
        is_clear_error,
    ),
    Trap(
        "accumulation",
        "ĝ over truth: 4 blocks that do not clear; the loss divided by 4 (varlearn: after `train()`)",
        "1.000, 1.000",
        probes.accumulation,
        lambda s: s == "1.000, 1.000",
    ),
    Trap("clipping after the block", "norm of ĝ after clipping to 1", "1", probes.clip_after_block, close_to(1.0)),
    Trap(
        "norm clipping and ĥ",
        "mean ĥ in 1,000 dimensions, curvature 2 (varlearn: `max_grad_norm`)",
        "2 ± 0.6",
        probes.clip_and_hessian,
        close_to(2.0, 0.3),
    ),
    Trap(
        "GradScaler",
        "ĝ after a scale of 1024; weights lost in an overflow",
        "1x; 0 lost",
        probes.grad_scaler,
        lambda s: s == "1x; 0 of 10 weights non-finite",
    ),
    Trap("NaN gradient", "non-finite entries of h after it", "0", probes.nan_gradient, close_to(0.0, 0.0)),
    Trap("bfloat16 parameters", "share of h that moved in 30 steps", "> 0.99", probes.bfloat16, lambda s: s > 0.99),
    Trap("mixed dtypes", "float32 and bfloat16 together", "works", probes.mixed_dtypes, is_works),
    Trap("`add_param_group`", "a step after it", "works", probes.add_group, is_works),
    Trap("storage", "after a step", "both kept", probes.storage, lambda s: "lost" not in s),
    Trap("backward outside the block", "what `step()` says", "RuntimeError", probes.backward_outside, is_clear_error),
    Trap(
        "random numbers",
        "global generator; noise of two ranks with equal seeds",
        "untouched; below 0.2",
        probes.global_rng,
        lambda s: "untouched" in s and abs(float(s.split()[-1])) < 0.2,
    ),
    Trap("plain DDP, 2 ranks", "ĥ over the mean of the ranks' products", "1", probes.ddp, close_to(1.0, 0.01)),
    Trap(
        "BatchNorm",
        "running mean to that at the mean weights, in stds",
        "0 after the helper",
        probes.batchnorm,
        close_to(0.0, 1e-5),
    ),
    Trap("averages are reset", "ĝ of the second step, true 5", "5", probes.own_samples, close_to(5.0)),
    Trap("bfloat16 restore", "drift after 100 samples", "0", probes.drift, close_to(0.0, 0.0)),
    Trap("cost", "sample and step against AdamW fused; peak memory", "≤ 5x, ≤ AdamW + 1.5", probes.cost, is_near_adamw),
    Trap(
        "validation",
        "beta1 = 1; message for hess_approx='hutchinson'",
        "refused; names it",
        probes.validation,
        lambda s: "refused" in s and "hutchinson" in s,
    ),
]


def observe(trap: Trap, package: Package) -> tuple[str, bool]:
    """What came out of a probe, and whether it is right. A probe that raises is not."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seen = trap.probe(package)
    except Exception as error:
        return probes.short(error), False
    return f"{seen:.4g}" if isinstance(seen, float) else str(seen), bool(trap.right(seen))


def table(figures: list[results.Figure]) -> str:
    """Markdown, one row per trap."""
    names = [package.name for package in PACKAGES]
    lines = ["| trap | measured | right | " + " | ".join(names) + " |", "|---|---|---|" + "---|" * len(names)]
    for start in range(0, len(figures), len(names)):
        row = figures[start : start + len(names)]
        cells = [f"{figure['right']} {figure['observed']}".replace("|", "\\|") for figure in row]
        lines.append(f"| {row[0]['case']} | {row[0]['measured']} | {row[0]['expected']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run every probe on both packages."""
    figures: list[results.Figure] = []
    for number, trap in enumerate(TRAPS, start=1):
        for package in PACKAGES:
            seen, right = observe(trap, package)
            row = {"case": f"{number}. {trap.title}", "contender": package.name, "measured": trap.measured}
            figures.append({**row, "expected": trap.expected, "observed": seen, "right": "✓" if right else "✗"})
    made = results.document("traps", figures, describe("python -m benchmarks.traps"), quick=False)
    results.write(results.FOLDER, made)
    (results.FOLDER / "traps.md").write_text(table(figures), encoding="utf-8")
    print(table(figures))
    for package in PACKAGES:
        right = sum(figure["right"] == "✓" for figure in figures if figure["contender"] == package.name)
        print(f"{package.name}: {right} of {len(TRAPS)} right")


if __name__ == "__main__":
    main()
