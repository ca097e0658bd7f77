"""When the Triton engine is chosen, when it is not trusted, and that optimizers work with it, in the interpreter."""

import copy
import logging
import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract import CONTRACTS, Contract, TinyNet, assert_same, fresh, mse, snapshot, train, weights
from tests.optim.engine.problems import member, needs_triton, new_group
from varlearn import IVON, VAdamW
from varlearn.core import update, vadamw
from varlearn.core.update import RULE
from varlearn.optim.engine import choice, loop
from varlearn.optim.engine.plan import Member
from varlearn.optim.engine.triton import triton_engine
from varlearn.optim.engine.triton.rule_launches import LAUNCHES

pytestmark = [needs_triton, pytest.mark.usefixtures("_fresh_check")]

CPU = torch.device("cpu")
LOOP = {"foreach": False, "fused": False}


@pytest.fixture
def _fresh_check() -> Iterator[None]:
    yield
    triton_engine.problem_on.cache_clear()
    triton_engine._warn.cache_clear()


# Which parameters


class Marked(Tensor):
    """A subclass that could mean anything."""


def with_state(param: Tensor, **tensors: Tensor) -> Member:
    each = member(param)
    each.state.update(tensors)
    return each


@pytest.mark.usefixtures("_triton_on_cpu")
@pytest.mark.parametrize(
    ("each", "is_supported"),
    [
        (member(torch.zeros(3)), True),
        (member(nn.Parameter(torch.zeros(3))), True),
        (member(torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)), True),
        (member(torch.zeros(0)), True),
        (member(torch.zeros(3).half()), True),
        (member(torch.zeros(3).bfloat16()), True),
        (with_state(torch.zeros(3), prior_mean=torch.zeros(3)), True),
        (member(torch.zeros(3, dtype=torch.float64)), False),
        (with_state(torch.zeros(3), mean=torch.zeros(3)), False),
        (with_state(torch.zeros(3), hess=torch.zeros(3, dtype=torch.float64)), False),
        (with_state(torch.zeros(3), momentum=torch.zeros(4)), False),
        (with_state(torch.zeros(3), prior_mean=torch.zeros(())), False),
        (with_state(torch.zeros(3), hess=torch.zeros(3, device="meta")), False),
        (with_state(torch.zeros(3, 4).t(), hess=torch.zeros(4, 3)), False),
        (member(torch.zeros(3, 4)[:, ::2]), False),
        (member(torch.zeros(3, device="meta")), False),
        (member(torch.zeros(3).as_subclass(Marked)), False),
    ],
)
def test_only_plain_dense_tensors_with_float32_state_are_taken(each: Member, is_supported: bool) -> None:
    assert triton_engine.supports(each, RULE) is is_supported
    assert not triton_engine.supports(each, RULE._replace(name="mine"))


def test_cpu_parameters_are_not_taken() -> None:
    assert triton_engine.DEVICES == ("cuda",)
    assert not triton_engine.supports(member(torch.zeros(3)), RULE)


@pytest.mark.usefixtures("_triton_on_cpu")
@pytest.mark.parametrize(
    ("wants", "engine"),
    [
        ({}, "triton"),
        ({"fused": True}, "triton"),
        ({"fused": True, "foreach": False}, "triton"),
        ({"foreach": True}, "foreach"),
        ({"fused": False}, "foreach"),
        ({"foreach": False}, "loop"),
    ],
    ids=str,
)
def test_it_is_chosen_where_the_native_engine_is_on_a_cpu(wants: dict[str, Any], engine: str) -> None:
    assert choice.choose(member(torch.zeros(3), group=new_group(**wants)), RULE) == engine


@pytest.mark.usefixtures("_triton_on_cpu")
def test_where_triton_is_not_installed_it_is_foreach_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_engine, "is_installed", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choice.choose(member(torch.zeros(3)), RULE) == "foreach"


# Whether it can be trusted


@pytest.mark.parametrize("dtype", triton_engine.DTYPES, ids=str)
@pytest.mark.parametrize("rule", [update.RULE, vadamw.RULE], ids=lambda rule: rule.name)
def test_it_checks_itself_on_first_use(rule: Any, dtype: torch.dtype) -> None:
    assert triton_engine.difference_from_loop(CPU, rule, dtype) < (2e-6 if dtype == torch.float32 else 6e-6)
    assert triton_engine.problem_on(CPU, rule.name, dtype) is None


@pytest.mark.usefixtures("_triton_on_cpu")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("what", ["wrong numbers", "NaN", "an error"])
def test_an_engine_that_fails_its_check_is_not_used_and_warns_once(
    what: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = loop.plan
    error = math.nan if what == "NaN" else 1e-3 if dtype == torch.float32 else 0.1

    def other(members: Any, rule: Any, before: Any = None) -> Any:
        if what == "an error":
            raise RuntimeError("ptxas failed\nwith many lines")
        its = plan(members, rule)
        draw = its.draw

        def shifted(noises: Any) -> None:
            draw(noises)
            members[0].param.add_(error)

        its.draw = shifted  # type: ignore[method-assign]
        return its

    monkeypatch.setattr(triton_engine, "plan", other)
    reasons = {"wrong numbers": "differ from the reference by", "NaN": "by nan", "an error": "ptxas failed;"}
    with pytest.warns(
        UserWarning, match=f"not used on cpu: .*{reasons[what]}.*the foreach engine is used.*varlearn doctor"
    ):
        assert choice.choose(member(torch.zeros(3, dtype=dtype)), RULE) == "foreach"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choice.choose(member(torch.zeros(3, dtype=dtype)), RULE) == "foreach"


# Optimizers whose rule has kernels here; the others are computed by foreach

ROWS = [row for row in CONTRACTS if row.optimizer.rule.name in LAUNCHES]


@pytest.mark.usefixtures("_triton_on_cpu")
@pytest.mark.parametrize(
    ("row", "kwargs"),
    [pytest.param(row, kwargs, id=f"{row.name}-{name}") for row in ROWS for name, kwargs in row.variants.items()],
)
def test_every_row_of_the_contract_is_the_loop_s(row: Contract, kwargs: dict[str, Any]) -> None:
    nets, opts = zip(*(fresh(row, **kwargs, **wants) for wants in ({}, LOOP)), strict=True)
    for net, opt in zip(nets, opts, strict=True):
        for _ in range(2):
            for _ in range(kwargs.get("mc_samples", 1)):
                row.backward(opt, lambda net=net: mse(net))
            opt.step()
    (report,) = opts[0].diagnostics()
    assert (report.by_triton, report.by_native, report.by_foreach, report.by_loop) == (5, 0, 0, 0)
    for ours, plain in zip(*(snapshot(opt)["state"] for opt in opts), strict=True):
        for name, value in ours.items():
            torch.testing.assert_close(value, plain[name], rtol=1e-4, atol=1e-5)
    for ours, plain in zip(*map(weights, nets), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("_triton_on_cpu")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_every_dtype_descends(row: Contract, dtype: torch.dtype) -> None:
    model, opt = fresh(row, dtype)
    before = mse(model).item()
    train(row, model, opt, [0] * 8)
    assert mse(model).item() < before
    (report,) = opt.diagnostics()
    assert report.by_triton == (0 if dtype == torch.float64 else 5)


@pytest.mark.usefixtures("_triton_on_cpu")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_resumed_run_gives_exactly_the_same_weights(row: Contract) -> None:
    model, opt = fresh(row)
    train(row, model, opt, range(2))
    saved = copy.deepcopy((model.state_dict(), opt.state_dict()))
    train(row, model, opt, range(2, 4))
    again, other = fresh(row)
    again.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    train(row, again, other, range(2, 4))
    assert_same(snapshot(opt), snapshot(other))


@pytest.mark.usefixtures("_triton_on_cpu")
@pytest.mark.parametrize("way", ["modes", "closure"])
def test_the_other_ways_of_training_are_the_loop_s(way: str) -> None:
    outcomes = []
    for wants in ({}, LOOP):
        model = TinyNet()
        opt = IVON(model.parameters(), lr=0.1, ess=100.0, seed=1, **wants)
        for _ in range(2):

            def backward(model: TinyNet = model, opt: IVON = opt) -> Tensor:
                opt.zero_grad()
                loss = mse(model)
                loss.backward()
                return loss

            if way == "closure":
                opt.step(backward)
            else:
                opt.train()
                backward()
                opt.step()
        outcomes.append(weights(model))
    for ours, plain in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


# Dropped steps


def poisoned(model: TinyNet, opt: Any, is_bad: bool) -> None:
    with opt.sampled_params(train=True):
        opt.zero_grad()
        mse(model).backward()
    if is_bad:
        assert model.first.weight.grad is not None
        model.first.weight.grad[0, 0] = math.nan
    opt.step()


@pytest.mark.usefixtures("_triton_on_cpu")
@pytest.mark.parametrize("kind", [IVON, VAdamW])
@pytest.mark.parametrize("read_skipped", [False, True])
def test_steps_are_dropped_as_in_the_loop(kind: Any, read_skipped: bool, caplog: pytest.LogCaptureFixture) -> None:
    outcomes = []
    caplog.set_level(logging.WARNING, logger="varlearn")
    settings = {"ess": 100.0} if kind is IVON else {"n": 100, "batch_size": 8}
    for wants in ({}, LOOP):
        model = TinyNet()
        opt = kind(model.parameters(), lr=0.1, seed=1, **settings, **wants)
        for is_bad in (True, False, True, False):
            poisoned(model, opt, is_bad)
            if read_skipped:
                assert opt.skipped_steps > 0
        saved = opt.state_dict()["state"]
        assert opt.skipped_steps == 2
        assert [state["step"] for state in saved.values()] == [2] * 5
        assert "skipped" in caplog.text
        caplog.clear()
        outcomes.append([*weights(model), *(state[opt.rule.curvature] for state in saved.values())])
    for ours, plain in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("_triton_on_cpu")
def test_a_refused_step_raises_and_changes_nothing() -> None:
    model = TinyNet()
    opt = IVON(model.parameters(), lr=0.1, ess=100.0, seed=1, nonfinite="raise")
    poisoned(model, opt, False)
    before = snapshot(opt)
    with pytest.raises(FloatingPointError, match="NaN or infinite gradient"):
        poisoned(model, opt, True)
    assert_same(before["weights"], snapshot(opt)["weights"])


@pytest.mark.usefixtures("_triton_on_cpu")
def test_gradscaler_s_scale_and_flag_are_read_by_the_kernel() -> None:
    """As GradScaler hands them over: tensors beside the optimizer, gradients still scaled."""
    outcomes = []
    for scale, overflows in ((1.0, [False, False]), (1024.0, [False, True, False])):
        model = TinyNet()
        opt: Any = IVON(model.parameters(), lr=0.1, ess=100.0, seed=1)
        for overflow in overflows:
            opt.grad_scale, opt.found_inf = torch.tensor([scale]), torch.tensor([float(overflow)])
            with opt.sampled_params(train=True):
                opt.zero_grad()
                (mse(model) * scale).backward()
            if overflow:
                opt.param_groups[0]["draws"] -= 1  # so that the next sample is that of the other run
            opt.step()
        assert opt.skipped_steps == sum(overflows)
        outcomes.append(weights(model))
    for ours, plain in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-6, atol=1e-6)
