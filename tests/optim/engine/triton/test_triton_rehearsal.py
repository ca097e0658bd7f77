"""A training loop of parameters without numbers: what is launched, and that the host waits for nothing.

Tensors of the device "meta" have a shape and a dtype only. Asking one for a number raises, so a run that passes has not
waited for the device. PyTorch's fake tensors say that they are on a GPU, and show which engine it gets.
"""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tests.optim.engine.problems import needs_triton
from varlearn import IVON, VAdamW
from varlearn.core.shards import PLAIN
from varlearn.core.update import RULE
from varlearn.optim import state
from varlearn.optim.engine import choice, foreach
from varlearn.optim.engine.plan import Member
from varlearn.optim.engine.triton import triton_engine

pytestmark = needs_triton

WAITS = "cannot be called on meta tensors"


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that a GPU would have run."""
    from varlearn.optim.engine.triton import launching

    found: list[str] = []

    def record(self: Any, kernel: Any, *args: Any, **constants: Any) -> None:
        found.append(kernel.__name__)

    monkeypatch.setattr(triton_engine, "DEVICES", ("meta",))
    monkeypatch.setattr(triton_engine, "problem_on", lambda device, rule, dtype: None)
    monkeypatch.setattr(state, "refuse_missing_values", lambda params: None)
    monkeypatch.setattr(Tensor, "data_ptr", lambda self: 4096 + 16 * id(self))
    monkeypatch.setattr(launching.Launcher, "run", record)
    monkeypatch.setattr(launching.Launcher, "run_once", record)
    return found


def on_meta(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(shape, dtype=dtype, device="meta")) for shape in ((4, 6), (7,), (1100,))]


def step(opt: Any, params: list[nn.Parameter]) -> None:
    with opt.sampled_params(train=True):
        opt.zero_grad()
        sum(param.float().square().sum() for param in params).backward()  # type: ignore[union-attr]
    opt.step()


def engines(opt: Any) -> set[str]:
    return {plan.engine for plan in opt._members._plans}


def test_who_asks_for_a_number_is_noticed() -> None:
    with pytest.raises(RuntimeError, match=WAITS):
        float(on_meta()[1].sum())


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_step_on_a_gpu_waits_for_nothing(dtype: torch.dtype, memory: str, launches: list[str]) -> None:
    params = on_meta(dtype)
    opt = IVON(params, lr=torch.tensor(0.1, device="meta"), ess=100.0, seed=0, memory=memory, max_grad_norm=1.0)
    for _ in range(3):
        launches.clear()
        step(opt, params)
        assert launches == ["make_keys", "draw", "restore", "look_for_nonfinite", "prepare", "step"]
    assert engines(opt) == {"triton"}


def test_a_step_of_variational_adamw_waits_when_it_measures_the_weights_alone(
    launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of the weights, of which the prior is made, is measured before the first step and every tenth."""
    widths = sys.modules["varlearn.optim.prior_widths"]  # the package has a function of this name
    monkeypatch.setattr(widths, "mean_squares", lambda parts, params: [1.0] * len(parts))
    params = on_meta()
    opt = VAdamW(params, lr=0.1, n=100, batch_size=10, steps=100, seed=0)
    for _ in range(9):
        launches.clear()
        step(opt, params)
        assert launches == ["make_keys", "make_scales", "draw", "restore", "look_for_nonfinite", "prepare", "step"]
    assert opt.param_groups[0]["ess"] < 1e5 * 0.6  # lambda has followed the steps


def test_gradscaler_s_tensors_are_not_read_by_the_host(launches: list[str]) -> None:
    params = on_meta(torch.float16)
    opt: Any = IVON(params, lr=0.1, ess=100.0, seed=0)
    opt.grad_scale, opt.found_inf = torch.ones(1, device="meta"), torch.zeros(1, device="meta")
    step(opt, params)
    assert launches[-1] == "step"


def test_modes_need_no_second_way_back(launches: list[str]) -> None:
    """The step reads the means from the copies. The restore after it is for a step that the device drops."""
    params = on_meta()
    opt = IVON(params, lr=0.1, ess=100.0, seed=0)
    opt.train()
    sum(param.square().sum() for param in params).backward()  # type: ignore[union-attr]
    opt.step()
    assert launches == ["make_keys", "draw", "look_for_nonfinite", "prepare", "step", "restore"]


def test_what_the_host_must_know_is_asked_for(launches: list[str]) -> None:
    params = on_meta()
    opt = IVON(params, lr=0.1, ess=100.0, seed=0, nonfinite="raise")
    with pytest.raises(RuntimeError, match=WAITS):
        step(opt, params)


def test_copies_and_tables_are_on_the_device(launches: list[str]) -> None:
    params = on_meta()
    opt = IVON(params, lr=0.1, ess=100.0, seed=0)
    step(opt, params)
    (plan,) = opt._members._plans
    tensors = [value for value in vars(plan).values() if isinstance(value, Tensor)]
    assert tensors
    assert {tensor.device.type for tensor in tensors} == {"meta"}


@pytest.mark.parametrize(("device", "is_capturing"), [("cuda", True), ("cuda", False), ("cpu", True)])
def test_whether_a_cuda_graph_is_captured(device: str, is_capturing: bool, monkeypatch: Any) -> None:
    from varlearn.optim.engine.triton import capturing

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_capturing)
    is_expected = device == "cuda" and is_capturing
    assert capturing.is_capturing(torch.device(device)) == is_expected
    if is_expected:
        with pytest.raises(RuntimeError, match="cannot be captured in a CUDA graph: because. Take three steps"):
            capturing.refuse(torch.device(device), "because")
    else:
        capturing.refuse(torch.device(device), "because")


@pytest.mark.parametrize("threads", [32, 64])
def test_a_program_has_as_many_threads_whatever_a_warp_is(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Radeon has ROCm and warps of 32 threads."""
    from varlearn.optim.engine.triton import launching, row_layout

    properties = SimpleNamespace(warp_size=threads)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    launching.warp_size.cache_clear()
    assert launching.options(launching.warp_size(torch.device("cuda:0")))["num_warps"] * threads == row_layout.THREADS
    launching.warp_size.cache_clear()


# Which engine a GPU gets


def member_on(device: str, dtype: torch.dtype = torch.float32, **wants: Any) -> Member:
    with FakeTensorMode(), torch.no_grad():
        param = torch.zeros(4, 6, dtype=dtype, device=device)
        its = {"step": 0, **{name: torch.zeros(4, 6, device=device) for name in RULE.state}}
        if dtype != torch.float32:
            its["mean"] = torch.zeros(4, 6, device=device)
    return Member(param, its, {"foreach": None, "fused": None, "memory": "fast", **wants}, 0)


@pytest.fixture
def _plain_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (triton_engine, foreach):
        monkeypatch.setattr(module, "PLAIN", (*PLAIN, FakeTensor))
    monkeypatch.setattr(triton_engine, "problem_on", lambda device, rule, dtype: None)


@pytest.mark.usefixtures("_plain_fakes")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("wants", "name"),
    [({}, "triton"), ({"fused": True}, "triton"), ({"fused": False}, "foreach"), ({"foreach": False}, "loop")],
    ids=str,
)
def test_the_engine_of_a_gpu(wants: dict[str, Any], name: str, dtype: torch.dtype) -> None:
    assert choice.choose(member_on("cuda", dtype, **wants), RULE) == name


@pytest.mark.usefixtures("_plain_fakes")
def test_a_gpu_gets_foreach_where_triton_is_not_or_cannot_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_engine, "problem_on", lambda device, rule, dtype: "it is wrong")
    with pytest.warns(UserWarning, match="not used on cuda:0: it is wrong"):
        assert choice.choose(member_on("cuda:0"), RULE) == "foreach"
    monkeypatch.setattr(triton_engine, "is_installed", lambda: False)
    assert choice.choose(member_on("cuda:0"), RULE) == "foreach"
    triton_engine._warn.cache_clear()


@pytest.mark.usefixtures("_plain_fakes")
def test_two_gpus_have_a_plan_each_and_the_old_one_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Made:
        engine = "triton"

        def __init__(self, members: list[Member], rule: Any, before: Any) -> None:
            self.members, self.before = members, before

    monkeypatch.setitem(choice.ENGINES, "triton", Made)  # type: ignore[misc]
    members = [member_on(device) for device in ("cuda:0", "cuda:1", "cuda:0")]
    first = choice.make_plans(members, RULE)
    assert [[str(member.param.device) for member in plan.members] for plan in first] == [["cuda:0"] * 2, ["cuda:1"]]
    second = choice.make_plans(members[1:], RULE, first)
    assert [plan.before for plan in second] == [first[1], first[0]]  # type: ignore[attr-defined]
