"""What the figures are meant to reach. A bar that is missed is said so; it is not a malfunction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from benchmarks import methods
from benchmarks.calls import CASE as CALLS_CASE
from benchmarks.merge import CASE as MERGE_CASE
from benchmarks.predict import CASE as PREDICT_CASE
from benchmarks.results import Document
from benchmarks.workloads import BY_SIZE, GPT_37M, GPT_STEP, MANY, RESNET20, RESNET20_REAL, RESNET_STEP


class Bar(NamedTuple):
    """A figure with its bar (to be reached) and its goal (to be wished for); smaller is better.

    "As much as AdamW" and "flat" have goals a little above 0 and 1: no measurement hits a number exactly.
    """

    says: str
    part: str
    case: str
    contender: str
    column: str
    bar: float
    goal: float


_FUSED, _LEAN = "varlearn fused", "varlearn fused, lean"
_MODES, _CLOSURE, _VADAMW = "varlearn fused, staying", "varlearn fused, staying closure", "VAdamW"
_OVER = "over_fused"  # ratio to AdamW; for memory, the difference

# fmt: off
BARS = (
    Bar("sample + step in a block, 37M parameters, x AdamW fused", "step", GPT_37M.name, _FUSED, _OVER, 2.1, 1.5),
    Bar("the same, modes that stay", "step", GPT_37M.name, _MODES, _OVER, 1.6, 1.3),
    Bar("the same, closure in such a mode", "step", GPT_37M.name, _CLOSURE, _OVER, 1.6, 1.3),
    Bar("the same, variational AdamW in a block", "step", GPT_37M.name, _VADAMW, _OVER, 2.1, 1.5),
    Bar("sample + step in a block, ResNet-20, x AdamW fused", "step", RESNET20.name, _FUSED, _OVER, 1.6, 1.5),
    Bar("the same, gradients of backward", "step", RESNET20_REAL.name, _FUSED, _OVER, 1.6, 1.5),
    Bar("the same, modes that stay", "step", RESNET20_REAL.name, _MODES, _OVER, 1.6, 1.3),
    Bar("the same, closure in such a mode", "step", RESNET20_REAL.name, _CLOSURE, _OVER, 1.6, 1.3),
    Bar("the same, variational AdamW in a block", "step", RESNET20_REAL.name, _VADAMW, _OVER, 1.6, 1.5),
    Bar("Python calls in a step, ResNet-20", "calls", CALLS_CASE, "block", "calls", 600, 300),
    Bar("training step, GPT-2 of 10M, x AdamW fused", "train", GPT_STEP.name, _FUSED, _OVER, 1.05, 1.02),
    Bar("training step, ResNet-20, x AdamW fused", "train", RESNET_STEP.name, _FUSED, _OVER, 1.05, 1.02),
    Bar("vectors more than AdamW fused, 37M parameters", "memory", GPT_37M.name, _FUSED, _OVER, 1.1, 1.1),
    Bar("vectors more than AdamW fused, 7,800 tensors", "memory", MANY.name, _FUSED, _OVER, 1.1, 1.1),
    Bar("the same, lean, 37M parameters", "memory", GPT_37M.name, _LEAN, _OVER, 1.1, 0.05),
    Bar("the same, lean, 7,800 tensors", "memory", MANY.name, _LEAN, _OVER, 1.1, 0.05),
    Bar("ns per parameter, 300M over 1M", "scaling", BY_SIZE[-1].name, _FUSED, "growth", 1.3, 1.1),
    Bar("predict without its draws, x forward passes", "predict", PREDICT_CASE, "predict", "without_draws", 1.05, 1.0),
    Bar("squares of examples, x forward and backward", "methods", methods.SQUARES, "vectorized", "ratio", 2.5, 1.7),
    Bar("the same, x one by one", "methods", methods.SQUARES, methods.LOOP, "ratio", 0.5, 0.3),
    Bar("step of BBB, x AdamW's", "methods", methods.STEP, "bbb", "ratio", 1.6, 1.3),
    Bar("SWAG's collection, x an epoch", "methods", methods.COLLECTION, "collection", "ratio", 0.01, 0.001),
    Bar("last-layer Laplace, x forward passes over the data", "methods", methods.FIT, "fit", "ratio", 1.2, 1.1),
    *(
        Bar(f"predictions of {name}, x forward", "methods", methods.PREDICTION, f"{name}: predict", "ratio", 1.05, 1.0)
        for name in methods.PREDICTED
    ),
    *(
        Bar(f"sensitivity to examples, {classes:,} classes, x forward and backward", "methods", methods.SENSITIVITY,
            methods.SENSITIVITIES.format(classes), "ratio", 4.0, 3.0)
        for classes in methods.CLASSES
    ),
    Bar("the same, 1,000 classes x 10", "methods", methods.SENSITIVITY, methods.MORE_CLASSES, "ratio", 1.2, 1.0),
    Bar("merging 1B parameters in files, GiB of memory", "merge", MERGE_CASE, "hessian", "peak_gib", 1.0, 0.5),
)
# fmt: on


def verdicts(documents: Mapping[str, Document]) -> list[list[str]]:
    """Heading and rows of a table; bars whose figures have not been measured are left out."""
    grid = [["figure", "measured", "bar", "goal", "verdict"]]
    for bar in BARS:
        figure = _find(documents.get(bar.part), bar)
        if figure is not None:
            value = float(figure[bar.column])
            grid.append([bar.says, f"{value:.3f}", f"{bar.bar:g}", f"{bar.goal:g}", _verdict(value, bar)])
    return grid


def _verdict(value: float, bar: Bar) -> str:
    return "goal" if value <= bar.goal else "bar" if value <= bar.bar else "missed"


def _find(document: Document | None, bar: Bar) -> Mapping[str, str | int | float] | None:
    for figure in document["figures"] if document else []:
        if figure["case"] == bar.case and figure["contender"] == bar.contender and bar.column in figure:
            return figure
    return None
