"""What the figures are meant to reach. A bar that is missed is said so; it is not a malfunction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.predict import CASE as PREDICT_CASE
from benchmarks.results import Document
from benchmarks.step import KEEPING_CASE
from benchmarks.workloads import BY_SIZE, GPT_37M, GPT_STEP, MANY, RESNET20, RESNET_STEP


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


_FUSED, _LEAN, _FOREACH = "varlearn fused", "varlearn fused, lean", "varlearn foreach"
_OVER, _OVER_FOREACH = "over_fused", "over_foreach"  # ratios to AdamW; for memory, the difference

# fmt: off
BARS = (
    Bar("sample + step, 37M parameters, x AdamW fused", "step", GPT_37M.name, _FUSED, _OVER, 2.5, 1.5),
    Bar("the same, where malloc keeps memory", "step", KEEPING_CASE, _FUSED, _OVER, 2.5, 1.5),
    Bar("sample + step, ResNet-20, x AdamW fused", "step", RESNET20.name, _FUSED, _OVER, 2.5, 1.5),
    Bar("foreach, 37M parameters, x AdamW foreach", "step", GPT_37M.name, _FOREACH, _OVER_FOREACH, 3.0, 2.0),
    Bar("the same, where malloc keeps memory", "step", KEEPING_CASE, _FOREACH, _OVER_FOREACH, 3.0, 2.0),
    Bar("foreach, ResNet-20, x AdamW foreach", "step", RESNET20.name, _FOREACH, _OVER_FOREACH, 3.0, 2.0),
    Bar("training step, GPT-2 of 10M, x AdamW fused", "train", GPT_STEP.name, _FUSED, _OVER, 1.05, 1.02),
    Bar("training step, ResNet-20, x AdamW fused", "train", RESNET_STEP.name, _FUSED, _OVER, 1.05, 1.02),
    Bar("vectors more than AdamW fused, 37M parameters", "memory", GPT_37M.name, _FUSED, _OVER, 1.1, 1.1),
    Bar("vectors more than AdamW fused, 7,800 tensors", "memory", MANY.name, _FUSED, _OVER, 1.1, 1.1),
    Bar("the same, lean, 37M parameters", "memory", GPT_37M.name, _LEAN, _OVER, 1.1, 0.05),
    Bar("the same, lean, 7,800 tensors", "memory", MANY.name, _LEAN, _OVER, 1.1, 0.05),
    Bar("ns per parameter, 300M over 1M", "scaling", BY_SIZE[-1].name, _FUSED, "growth", 1.3, 1.1),
    Bar("predict without its draws, x forward passes", "predict", PREDICT_CASE, "predict", "without_draws", 1.05, 1.0),
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
