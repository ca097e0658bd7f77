"""The package's models with gradients of a real backward: the native engine takes all of them, as they are."""

import os
import sys
from pathlib import Path
from types import FrameType

import pytest
import torch
from torch import nn

import varlearn
from tests.models.cases import CASES, TOO_LARGE
from tests.optim.engine.problems import needs_compiler
from varlearn import IVON, models

pytestmark = needs_compiler

SOURCE = str(Path(varlearn.__file__).parent) + os.sep
QUICK = ["resnet20", "gpt2_tiny", "mlp", "lenet"]


def build(name: str) -> tuple[nn.Module, torch.Tensor]:
    """The model and a batch for it. Above 30 million parameters: two blocks of its width, and few tokens."""
    case = CASES[name]
    if name in TOO_LARGE:
        with torch.device("meta"):
            width = case.build().tokens.weight.shape[1]
        return models.GPT2(vocab=50, context=12, width=width, layers=2, heads=width // 64), case.inputs(2)
    return case.build(**case.small), case.inputs(2)


def step(model: nn.Module, inputs: torch.Tensor, opt: IVON) -> None:
    with opt.sampled_params(train=True):
        opt.zero_grad()
        model(inputs).float().square().mean().backward()
    opt.step()


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES],
)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "last"])
def test_every_parameter_is_native_and_no_gradient_is_copied(name: str, memory_format: torch.memory_format) -> None:
    if memory_format == torch.channels_last and not CASES[name].image:
        pytest.skip("not a model of images")
    model, inputs = build(name)
    if memory_format == torch.channels_last:
        model, inputs = model.to(memory_format=memory_format), inputs.to(memory_format=memory_format)
    opt = IVON(model.parameters(), lr=1e-3, ess=1e4, seed=0)
    for number in range(3):
        step(model, inputs, opt)
        if number >= 1:
            (report,) = opt.diagnostics()
            assert report.by_native == len(list(model.parameters()))
            assert (report.by_foreach, report.by_loop) == (0, 0)
            assert report.converted == 0


def test_a_step_on_resnet20_makes_few_python_calls() -> None:
    """Counted from entering the block to the end of step(), forward and backward in between; hooks included."""
    model, inputs = build("resnet20")
    opt = IVON(model.parameters(), lr=1e-3, ess=1e4, seed=0)
    for _ in range(3):
        step(model, inputs, opt)
    calls: dict[str, int] = {}

    def count(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SOURCE) and not name.startswith(SOURCE + "models"):
            calls[frame.f_code.co_name] = calls.get(frame.f_code.co_name, 0) + 1

    sys.setprofile(count)
    try:
        step(model, inputs, opt)
    finally:
        sys.setprofile(None)
    total = sum(calls.values())
    print(total, sorted(calls.items(), key=lambda item: -item[1])[:10])
    assert 20 < total < 600, calls
