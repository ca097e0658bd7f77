"""Errors inside a block, whatever raises them, leave everything as it was."""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tests.optim.contract import assert_same, in_block, mse, snapshot
from tests.optim.undisturbed import assert_goes_on, fresh, unchanged
from varlearn import IVON
from varlearn.optim.engine.tensor_plan import TensorPlan


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def out_of_memory() -> None:
    raise torch.OutOfMemoryError("out of memory: tried to allocate 2 GiB")


def allocation_fails() -> None:
    torch.empty(1 << 60)


def leave_the_program() -> None:
    raise SystemExit(1)


FAILURES: dict[str, tuple[Callable[[], None], type[BaseException]]] = {
    "KeyboardInterrupt": (interrupt, KeyboardInterrupt),
    "OutOfMemoryError": (out_of_memory, torch.OutOfMemoryError),
    "allocation": (allocation_fails, RuntimeError),
    "SystemExit": (leave_the_program, SystemExit),
}


@pytest.mark.parametrize("when", ["before forward", "before backward", "after backward", "in the second sample"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_inside_a_training_block(failure: str, when: str) -> None:
    fail, kind = FAILURES[failure]
    model, opt = fresh()
    with unchanged(opt):
        if when == "in the second sample":
            in_block(opt, lambda: mse(model, 7))
        with pytest.raises(kind), opt.sampled_params(train=True):  # noqa: PT012
            if when == "before forward":
                fail()
            opt.zero_grad()
            loss = mse(model)
            if when == "before backward":
                fail()
            loss.backward()
            fail()
    if when == "in the second sample":
        opt.step()  # with the first sample alone
        other, other_opt = fresh()
        in_block(other_opt, lambda: mse(other, 7))
        other_opt.step()
        assert_same(snapshot(opt), snapshot(other_opt))
    else:
        assert all(param.grad is None for param in model.parameters())
        assert_goes_on(model, opt)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_inside_an_evaluation_block(failure: str) -> None:
    fail, kind = FAILURES[failure]
    model, opt = fresh()
    with unchanged(opt), pytest.raises(kind), torch.no_grad(), opt.sampled_params():  # noqa: PT012
        mse(model)
        fail()
    assert_goes_on(model, opt)


@pytest.mark.parametrize("sample", [1, 2, 3])
def test_a_failure_inside_a_closure(sample: int) -> None:
    model, opt = fresh(mc_samples=3)
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        opt.zero_grad()
        loss = mse(model)
        loss.backward()
        if calls == sample:
            out_of_memory()
        return loss

    with unchanged(opt), pytest.raises(torch.OutOfMemoryError):
        opt.step(closure)
    calls = 10
    opt.step(closure)  # the failed call left no samples behind
    other, other_opt = fresh(mc_samples=3)

    def undisturbed() -> Tensor:
        other_opt.zero_grad()
        loss = mse(other)
        loss.backward()
        return loss

    other_opt.step(undisturbed)
    assert_same(snapshot(opt), snapshot(other_opt))


def test_a_step_that_fails_after_its_closure_leaves_no_sample_behind() -> None:
    """Else every later step(closure) would be refused: samples would wait for a step()."""
    models = [fresh(), fresh()]
    (model, opt), (_, other_opt) = models

    def closure(model: nn.Module, opt: IVON, lr: float) -> Callable[[], Tensor]:
        def work() -> Tensor:
            opt.zero_grad()
            loss = mse(model)
            loss.backward()
            opt.param_groups[0]["lr"] = lr
            return loss

        return work

    lr = opt.param_groups[0]["lr"]
    with pytest.raises(ValueError, match="lr=-1.0"):
        opt.step(closure(model, opt, -1.0))
    assert not opt.is_sampled
    opt.param_groups[0]["lr"] = lr
    for each, its in models:
        its.step(closure(each, its, lr))
    assert_same(snapshot(opt), snapshot(other_opt))


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("train", [False, True], ids=["evaluation", "training"])
def test_a_draw_that_runs_out_of_memory_half_way(train: bool, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, opt = fresh(memory=memory, foreach=False, fused=False)
    write, calls = TensorPlan._write_sample, 0

    def fails_half_way(plan: TensorPlan, chunk: Any, sign: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            out_of_memory()
        write(plan, chunk, sign)

    before = snapshot(opt)
    monkeypatch.setattr(TensorPlan, "_write_sample", fails_half_way)
    with pytest.raises(torch.OutOfMemoryError), opt.sampled_params(train=train):
        raise AssertionError("the block is not entered")
    monkeypatch.undo()
    assert not opt.is_sampled
    after = snapshot(opt)
    assert_same(before["state"], after["state"])
    for old, new in zip(before["weights"], after["weights"], strict=True):
        tolerance = 0.0 if memory == "fast" else 1e-6  # lean recovers the mean to an ulp
        torch.testing.assert_close(new, old, rtol=tolerance, atol=tolerance)
    if memory == "fast":
        assert_goes_on(model, opt)


class DyingDataset(Dataset[Tensor]):
    """Its worker is killed at the second example, as the kernel does when memory runs out."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        if index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(3)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_dead_data_loader_worker_inside_the_block() -> None:
    model, opt = fresh()
    loader = DataLoader(DyingDataset(), batch_size=1, num_workers=1, multiprocessing_context="fork")
    with unchanged(opt), pytest.raises(RuntimeError, match="worker"), opt.sampled_params(train=True):  # noqa: PT012
        for example in loader:
            opt.zero_grad()
            model(example).sum().backward()
    assert_goes_on(model, opt)


@pytest.mark.parametrize("stay", [False, True])
def test_a_closure_that_fails_in_a_mode_leaves_the_mean(stay: bool) -> None:
    model, opt = fresh()

    def closure() -> None:
        assert not all(map(torch.equal, model.parameters(), means))  # it sees a sample
        raise ArithmeticError

    with unchanged(opt):
        means = [param.detach().clone() for param in model.parameters()]
        opt.train(stay=stay)
        with pytest.raises(ArithmeticError):
            opt.step(closure)
        assert all(map(torch.equal, model.parameters(), means))
    in_block(opt, lambda: mse(model))
    opt.step()
    assert not opt.is_sampled  # the mode is over, also one that stays


def test_a_loaded_checkpoint_is_not_kept() -> None:
    _, opt = fresh()
    given = opt.state_dict()
    given["note"] = Note()
    kept = weakref.ref(given["note"])
    opt.load_state_dict(given)
    del given
    assert kept() is None


class Note:
    """Something that a weak reference can be made to."""
