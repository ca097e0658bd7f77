"""`torch.set_default_device` and `torch.set_default_dtype` change nothing: optimizers say what they make, and where.

The default device of these tests is "meta", whose tensors have no numbers. Whatever is made there by mistake fails when
it is used, as a tensor on a GPU does beside one on the CPU.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.engine.problems import WISHES, needs_compiler, needs_triton
from varlearn import IVON, VAdamW
from varlearn.optim.engine.native import native_engine
from varlearn.optim.engine.triton import triton_engine

ENGINES = [
    "loop",
    "foreach",
    pytest.param("native", marks=needs_compiler),
    pytest.param("triton", marks=needs_triton),
]


@contextmanager
def elsewhere() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


def ivon(params: list[nn.Parameter], **kwargs: Any) -> IVON:
    return IVON(params, lr=0.1, ess=100.0, seed=0, max_grad_norm=1.0, **kwargs)


def vadamw(params: list[nn.Parameter], **kwargs: Any) -> VAdamW:
    return VAdamW(params, lr=0.1, n=100, batch_size=10, seed=0, **kwargs)


def trained(build: Callable[..., Any], wishes: dict[str, Any], memory: str, samples: int) -> list[Tensor]:
    params = [nn.Parameter(torch.linspace(-1.0, 1.0, size, device="cpu")) for size in (7, 1030)]
    opt = build(params, memory=memory, **wishes)
    for _ in range(3):
        for _ in range(samples):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                sum(param.square().sum() for param in params).backward()  # type: ignore[union-attr]
        opt.step()
    opt.diagnostics()
    return [tensor for param in params for tensor in (param.detach(), *opt.state[param].values())]


@pytest.mark.parametrize(("memory", "samples"), [("fast", 1), ("lean", 2)])
@pytest.mark.parametrize("build", [ivon, vadamw])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_default_device_is_not_where_the_state_is(
    engine: str, build: Callable[..., Any], memory: str, samples: int, request: pytest.FixtureRequest
) -> None:
    if engine == "triton":
        request.getfixturevalue("_triton_on_cpu")
    usual = trained(build, WISHES[engine], memory, samples)
    with elsewhere():
        moved = trained(build, WISHES[engine], memory, samples)
    for one, other in zip(usual, moved, strict=True):
        assert torch.equal(one, other) if isinstance(one, Tensor) else one == other


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rule", ["ivon", "vadamw"])
def test_the_triton_engine_checks_itself_in_its_own_dtype_on_its_own_device(rule: str, dtype: torch.dtype) -> None:
    torch.set_default_dtype(dtype)
    with elsewhere():
        assert triton_engine.difference_from_loop(torch.device("cpu"), triton_engine.RULES[rule]) < 1e-5


@needs_triton
def test_tables_for_a_graph_are_in_the_host_s_memory() -> None:
    from varlearn.optim.engine.triton.device_tables import DeviceTable

    with elsewhere():
        table = DeviceTable(torch.int64, torch.device("cpu"))
        table.write([1, 2])
        assert {spare.device.type for spare in table._spares} == {"cpu"}


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_the_native_engine_checks_itself_in_its_own_dtype_on_its_own_device(dtype: torch.dtype) -> None:
    torch.set_default_dtype(dtype)
    with elsewhere():
        assert native_engine._agrees(native_engine.load())
