"""Sharded parameters on the Triton engine: one process that believes to be one of four ranks, in the interpreter."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from tests.optim.engine.problems import needs_triton, new_group, plan_of
from varlearn.core.noise import fold_in, normal_
from varlearn.core.update import RULE, Hyper
from varlearn.optim.engine import choice
from varlearn.optim.engine.plan import Member, Noise, StepSettings
from varlearn.optim.engine.triton import triton_engine

pytestmark = [needs_triton, pytest.mark.usefixtures("_triton_on_cpu")]

RANK, RANKS = 3, 4
NOISE = Noise(9, 4.0, 0.5)


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=RANK, world_size=RANKS)
    yield DeviceMesh("cpu", list(range(RANKS)))
    dist.destroy_process_group()


def sharded(mesh: DeviceMesh, whole: torch.Tensor, dim: int = 0) -> DTensor:
    part = whole.chunk(RANKS, dim)[RANK].contiguous()
    return DTensor.from_local(part, mesh, [Shard(dim)], run_check=False, shape=whole.shape, stride=whole.stride())


def member_of(mesh: DeviceMesh, whole: torch.Tensor, dim: int = 0) -> Member:
    state: dict[str, Any] = {"step": 0, "momentum": sharded(mesh, torch.zeros_like(whole), dim)}
    state["hess"] = sharded(mesh, torch.linspace(0.1, 1.0, whole.numel()).view_as(whole), dim)
    return Member(sharded(mesh, whole, dim), state, new_group(), 3)


def test_a_shard_computes_its_part_of_the_whole(mesh: DeviceMesh) -> None:
    """As FSDP2 cuts it: the noise is that of its place, and the step is that of the loop."""
    whole, outcomes = torch.randn(20, 70), []
    for engine in ("triton", "loop"):
        each = member_of(mesh, whole.clone())
        assert choice.choose(each, RULE) == "triton"
        plan = plan_of(engine, [each])
        plan.draw({id(each.group): NOISE})
        sample = each.param._local_tensor.clone()  # type: ignore[attr-defined]
        hyper = Hyper(0.1, 4.0, 0.5, beta1=0.9, beta2=0.9, clip_radius=1.0, debias=0.1)
        plan.step([(0, torch.ones(5, 70), None)], [StepSettings(hyper, "reparam", NOISE)])
        outcomes.append([sample, each.param._local_tensor, each.state["hess"]._local_tensor])  # type: ignore[attr-defined]
    for ours, plain in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, plain, rtol=2e-6, atol=2e-6)
    noise = normal_(torch.empty(20, 70), fold_in(NOISE.key, 3)).chunk(RANKS)[RANK]
    hess = torch.linspace(0.1, 1.0, 1400).view(20, 70).chunk(RANKS)[RANK]
    std = (4.0 * (hess + 0.5)).rsqrt()
    torch.testing.assert_close(outcomes[0][0], whole.chunk(RANKS)[RANK] + std * noise, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("shape", "dim", "engine"), [
    ((20, 70), 0, "triton"),
    ((4, 8), 0, "triton"),
    ((4, 7), 0, "loop"),  # begins at number 21, the second of a pair
    ((20, 72), 1, "loop"),  # columns: not a run of the whole
])  # fmt: skip
def test_runs_of_the_whole_are_taken(shape: tuple[int, ...], dim: int, engine: str, mesh: DeviceMesh) -> None:
    each = member_of(mesh, torch.randn(shape), dim)
    assert triton_engine.supports(each, RULE) == (engine == "triton")
    assert choice.choose(each, RULE) == engine
