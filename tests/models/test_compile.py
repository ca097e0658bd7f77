"""The models under `torch.compile`: outputs and gradients are as without it.

Really compiled, by the default backend, are the normalization layer, the shallow models, and blocks of each deep one.
All models but the GRU are traced, forwards and backwards, into a single graph.
"""

import copy

import pytest
import torch
from torch import nn

from tests.models.cases import CASES, RUNNABLE
from varlearn.models import FilterResponseNorm, densenet121, preresnet110, resnet50

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")

WHOLE = ["resnet20", "resnet20_swish", "resnet18", "mlp", "lenet", "alexnet", "gpt2_tiny"]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def outputs_and_gradients(function, model, inputs):
    outputs = function(inputs)
    weighted = (outputs * torch.linspace(-1, 1, outputs.numel()).view_as(outputs)).sum()
    return [outputs, *torch.autograd.grad(weighted, list(model.parameters()))]


def check(
    compiled, plain: nn.Module, inputs: torch.Tensor, *, weights: nn.Module | None = None, count: int = 1
) -> None:
    """Compare outputs and gradients; `weights` holds those of `compiled`, which are `plain`'s unless given."""
    expected = outputs_and_gradients(plain, plain, inputs)
    assert graphs() == 0
    got = outputs_and_gradients(compiled, weights or plain, inputs)
    assert graphs() == count
    names = ["outputs", *(name for name, _ in plain.named_parameters())]
    for name, one, other in zip(names, got, expected, strict=True):
        error = (one - other).norm() / other.norm().clamp(min=1e-6)
        assert error < 1e-3, f"{name}: relative error {error:.1e}"


def test_frn():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), FilterResponseNorm(3))
    check(torch.compile(model, fullgraph=True), model, torch.randn(2, 2, 6, 6))


def test_gru_runs_uncompiled():
    """The compiler does not trace nn.GRU: the model runs as without it, and does not fail."""
    model, tokens = CASES["gru"].build(**CASES["gru"].small), CASES["gru"].inputs(2)
    for one, other in zip(
        *(outputs_and_gradients(f, model, tokens) for f in (torch.compile(model), model)), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_models(name):
    model = CASES[name].build(**CASES[name].small)
    check(torch.compile(model, fullgraph=True), model, CASES[name].inputs(2))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUNNABLE if name != "gru"])
def test_models_are_one_graph(name):
    model = CASES[name].build(**CASES[name].small)
    check(torch.compile(model, fullgraph=True, backend="aot_eager"), model, CASES[name].inputs(2))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # asked by dynamo
def test_blocks_of_preresnet110_share_five_graphs():
    """One kind of block in the first stage, two in each of the others."""
    plain = preresnet110()
    compiled = copy.deepcopy(plain)
    for block in compiled.blocks:
        block.compile(dynamic=False, fullgraph=True)
    check(compiled, plain, torch.randn(2, 3, 16, 16), weights=compiled, count=5)


@pytest.mark.slow
def test_a_layer_and_a_transition_of_densenet121():
    blocks = densenet121().blocks
    model = nn.Sequential(blocks[0][5], blocks[1])
    check(torch.compile(model, fullgraph=True), model, torch.randn(2, 84, 8, 8))


@pytest.mark.slow
def test_two_bottlenecks_of_resnet50():
    model = resnet50(classes=10).blocks[3:5]
    check(torch.compile(model, fullgraph=True), model, torch.randn(2, 256, 8, 8))
