"""Python calls that one step makes inside the library: what small tensors cost is Python, not arithmetic."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import varlearn
from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.tables import Column
from benchmarks.workloads import images
from varlearn.models import resnet20

CASE = "ResNet-20, the fourth step, hooks of backward included"
_PACKAGE = str(Path(varlearn.__file__).parent)
_MODELS = str(Path(varlearn.__file__).parent / "models")


def count_calls(run: Callable[[], object]) -> int:
    """Python functions of the library that `run` calls; the model's own are left out."""
    calls = 0

    def look(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        name = frame.f_code.co_filename
        calls += event == "call" and name.startswith(_PACKAGE) and not name.startswith(_MODELS)

    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def steps() -> dict[str, Callable[[], object]]:
    """The three ways to take a step, on a network with gradients of a real backward."""
    model = resnet20()
    optimizer = varlearn.IVON(model.parameters(), lr=0.1, ess=1e4)
    inputs, targets = images(2, side=8)

    def backward() -> torch.Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        return loss

    def block() -> None:
        with optimizer.sampled_params(train=True):
            backward()
        optimizer.step()

    def modes() -> None:
        optimizer.train()
        backward()
        optimizer.step()

    return {"block": block, "modes": modes, "closure": lambda: optimizer.step(backward)}


def measure(quick: bool) -> list[Figure]:
    """Calls of the fourth step of each kind."""
    figures: list[Figure] = []
    for name, step in steps().items():
        for _ in range(3):
            step()
        figures.append({"case": CASE, "contender": name, "calls": count_calls(step)})
    return figures


PART = Part(
    name="calls",
    title="Python calls inside the library in one step",
    columns=(Column("contender", "how"), Column("calls", "calls", "d", is_main=True)),
    measure=measure,
)
