"""The mean is never lost: whatever samples are open, in whatever order they close, and wherever an interrupt falls."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import varlearn
from tests.optim.contract import TinyNet, assert_same, in_block, mse, snapshot, weights
from varlearn import IVON

KWARGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.99), "seed": 1}
LOW = (torch.bfloat16, torch.float16)
ALL = (torch.float64, torch.float32, *LOW)


def fresh(dtype: torch.dtype = torch.float32, steps: int = 2, **kwargs: Any) -> tuple[TinyNet, IVON]:
    model = TinyNet(dtype)
    opt = IVON(model.parameters(), **{**KWARGS, **kwargs})
    for index in range(steps):
        step(model, opt, index)
    return model, opt


def step(model: TinyNet, opt: IVON, index: int = 0) -> None:
    in_block(opt, lambda: mse(model, index))
    opt.step()


# Overlapping samples


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_overlapping_evaluation_samples_close_in_any_order(order: tuple[int, ...], dtype: torch.dtype) -> None:
    model, opt = fresh(dtype)
    mean = weights(model)
    blocks, shown = [], []
    for _ in range(3):
        blocks.append(opt.sampled_params())
        blocks[-1].__enter__()
        shown.append(weights(model))
    assert len({sample[0].item() for sample in shown}) == 3
    still_open = [0, 1, 2]
    for which in order:
        blocks[which].__exit__(None, None, None)
        still_open.remove(which)
        assert_same(weights(model), shown[still_open[-1]] if still_open else mean)
    assert not opt.is_sampled


def test_evaluation_inside_a_training_block_changes_nothing() -> None:
    plain, plain_opt = fresh(steps=3)
    model, opt = fresh(steps=2)
    with opt.sampled_params(train=True):
        sample = weights(model)
        for _ in range(2):
            with torch.no_grad(), opt.sampled_params():
                assert not torch.equal(model.scale, sample[0])
            assert_same(weights(model), sample)
        opt.zero_grad()
        mse(model, 2).backward()
    opt.step()
    assert_same(snapshot(opt), snapshot(plain_opt))
    assert_same(weights(model), weights(plain))


def test_evaluating_between_training_samples_changes_nothing() -> None:
    _, plain_opt = fresh(steps=5)
    model, opt = fresh(steps=0)
    for index in range(5):
        with opt.sampled_params(), opt.sampled_params():
            pass
        step(model, opt, index)
    assert_same(snapshot(opt), snapshot(plain_opt))


def test_evaluation_samples_inside_a_mode_give_the_training_sample_back() -> None:
    model, opt = fresh()
    mean = weights(model)
    opt.train()
    sample = weights(model)
    with opt.sampled_params():
        assert not torch.equal(model.scale, sample[0])
    assert_same(weights(model), sample)
    opt.eval()
    assert_same(weights(model), mean)
    opt.train()
    assert_same(weights(model), sample)  # the same one until step()
    opt.eval()


def test_a_training_sample_may_outlive_the_evaluation_sample_it_began_in() -> None:
    model, opt = fresh()
    mean = weights(model)
    evaluation = opt.sampled_params()
    evaluation.__enter__()
    opt.train()
    sample = weights(model)
    evaluation.__exit__(None, None, None)
    assert_same(weights(model), sample)
    opt.eval()
    assert_same(weights(model), mean)


def test_a_block_that_is_forgotten_gives_the_mean_back() -> None:
    model, opt = fresh()
    mean = weights(model)
    block = opt.sampled_params()
    block.__enter__()
    assert opt.is_sampled
    del block
    gc.collect()
    assert_same(weights(model), mean)


def test_copies_of_the_mean_are_not_drawn_into_each_other() -> None:
    """Two optimizers over two halves of a model, their blocks interleaved."""
    model = TinyNet()
    first = IVON(model.first.parameters(), **KWARGS)
    second = IVON([*model.second.parameters(), model.scale], **KWARGS)
    mean = weights(model)
    one, two = first.sampled_params(), second.sampled_params()
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    two.__exit__(None, None, None)
    assert_same(weights(model), mean)


# Threads


def test_threads_evaluate_one_after_the_other() -> None:
    model, opt = fresh()
    mean = weights(model)

    def evaluate(_: int) -> float:
        with torch.no_grad(), opt.sampled_params():
            before = weights(model)
            mse(model)
            assert_same(weights(model), before)
            return before[0].item()

    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(evaluate, range(40)))
    assert len(set(drawn)) == 40
    assert_same(weights(model), mean)


@pytest.mark.parametrize("mode", [False, True], ids=["blocks", "modes"])
def test_threads_evaluate_while_another_trains(mode: bool) -> None:
    """Whoever evaluates sees one sample from beginning to end, and training is what it is without them."""

    def train(model: TinyNet, opt: IVON) -> None:
        for index in range(20):
            if mode:
                opt.train()
                opt.zero_grad()
                opt.eval()
                opt.train()
                with torch.no_grad():
                    model(torch.ones(1, 3))
                opt.step()
            else:
                step(model, opt, index)

    plain, plain_opt = fresh()
    train(plain, plain_opt)
    model, opt = fresh()
    done, torn = threading.Event(), []

    def evaluate() -> None:
        while not done.is_set():
            with torch.no_grad(), opt.sampled_params():
                before = weights(model)
                for _ in range(5):
                    mse(model)
                if not all(map(torch.equal, before, weights(model))):
                    torn.append(before)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=evaluate) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        train(model, opt)
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not torn
    assert_same(weights(model), weights(plain))


def test_a_block_may_be_left_by_another_thread() -> None:
    model, opt = fresh()
    mean = weights(model)
    block = opt.sampled_params()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(block.__enter__).result()
    block.__exit__(None, None, None)
    assert_same(weights(model), mean)
    with opt.sampled_params():
        pass


# Inference mode


@pytest.mark.parametrize("steps", [0, 2], ids=["first sample ever", "later"])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_evaluation_under_inference_mode(dtype: torch.dtype, steps: int) -> None:
    plain, plain_opt = fresh(dtype, steps)
    model, opt = fresh(dtype, steps)
    mean = weights(model)
    with torch.inference_mode(), opt.sampled_params():
        assert not torch.equal(model.scale, mean[0])
    with opt.sampled_params(), torch.inference_mode():
        mse(model)
    assert_same(weights(model), mean)
    for a_model, an_opt in ((plain, plain_opt), (model, opt)):
        step(a_model, an_opt)
        state = an_opt.state[a_model.scale]
        assert not any(value.is_inference() for value in state.values() if isinstance(value, Tensor))
    assert_same(snapshot(opt), snapshot(plain_opt))


# Storage


@pytest.mark.parametrize("memory", ["fast", "lean"])
def test_identity_storage_strides_and_views_are_kept(memory: Any) -> None:
    flat = torch.linspace(-1.0, 1.0, 40)
    layouts = {
        "slice of a buffer": flat[:6].view(2, 3),
        "transposed": flat[6:12].view(2, 3).t(),
        "with gaps": flat[12:24:2],
        "0-dim": flat[24],
        "channels last": torch.ones(2, 3, 2, 2).to(memory_format=torch.channels_last),
    }
    params = {name: nn.Parameter(tensor) for name, tensor in layouts.items()}
    opt = IVON(params.values(), memory=memory, **KWARGS)
    before = {name: (p.data_ptr(), p.stride(), p.storage_offset(), id(p)) for name, p in params.items()}
    untouched = flat[25:].clone()
    for _ in range(3):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            inside = {name: (p.data_ptr(), p.stride(), p.storage_offset(), id(p)) for name, p in params.items()}
            sum((p**2).sum() for p in params.values()).backward()  # type: ignore[union-attr]
        opt.step()
    assert inside == before
    assert {name: (p.data_ptr(), p.stride(), p.storage_offset(), id(p)) for name, p in params.items()} == before
    assert torch.equal(flat[:6].view(2, 3), params["slice of a buffer"])  # the buffer sees the update
    assert torch.equal(flat[25:], untouched)
    assert torch.equal(flat[13:24:2], torch.linspace(-1.0, 1.0, 40)[13:24:2])  # nothing is written into the gaps


def test_a_transposed_parameter_is_its_contiguous_twin_transposed() -> None:
    start = torch.linspace(-1.0, 1.0, 6).view(2, 3)
    plain, turned = nn.Parameter(start.clone()), nn.Parameter(start.clone().t())
    for param in (plain, turned):
        opt = IVON([param], **KWARGS)
        for _ in range(3):
            in_block(opt, lambda param=param: (param**2 + param.abs().sqrt()).sum())
            opt.step()
    assert torch.equal(plain, turned.t())


# Weights changed from outside


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("how", ["copy_", "load_state_dict", "data", "entry"])
def test_weights_changed_between_steps_are_respected(how: str, dtype: torch.dtype) -> None:
    model, opt = fresh(dtype)
    mean = {name: param.detach().clone() for name, param in model.named_parameters()}
    new = {name: value.clone() for name, value in mean.items()}
    new["first.weight"][0, 0] = 3.0
    if how == "copy_":
        with torch.no_grad():
            model.first.weight.copy_(new["first.weight"])
    elif how == "load_state_dict":
        model.load_state_dict(new)
    elif how == "data":
        model.first.weight.data = new["first.weight"].clone()
    else:
        model.first.weight.data[0, 0] = 3.0
    with opt.sampled_params():
        assert abs(model.first.weight[0, 0].item() - 3.0) < 1.0
    assert_same({name: param.detach() for name, param in model.named_parameters()}, new)
    opt.param_groups[0]["lr"] = 0.0
    step(model, opt)
    assert_same({name: param.detach() for name, param in model.named_parameters()}, new)


def test_weights_changed_between_sample_and_step_are_respected() -> None:
    model, opt = fresh()
    in_block(opt, lambda: mse(model))
    with torch.no_grad():
        model.scale.add_(1.0)
    value = model.scale.item()
    opt.param_groups[0]["lr"] = 0.0
    opt.step()
    assert model.scale.item() == value


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_a_model_that_is_cast_down_while_training_gets_a_float32_mean(dtype: torch.dtype) -> None:
    model, opt = fresh()
    model.to(dtype)
    opt.param_groups[0].update(lr=1e-6, weight_decay=0.0)
    for index in range(5):
        step(model, opt, index)
    mean = opt.state[model.first.weight]["mean"]
    assert mean.dtype == torch.float32
    assert not torch.equal(mean, model.first.weight.float())  # the small steps are kept


@pytest.mark.parametrize("memory", ["fast", "lean"])
def test_a_model_that_is_cast_up_while_training_goes_on(memory: str) -> None:
    model, opt = fresh(torch.bfloat16, memory=memory)
    model.float()
    mean = weights(model)
    for _ in range(2):
        with opt.sampled_params():
            assert not torch.equal(model.scale, mean[0])
    torch.testing.assert_close(weights(model), mean, rtol=1e-6, atol=1e-6)
    step(model, opt)
    assert not torch.equal(model.scale, mean[0])


# Low precision


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_steps_far_below_the_precision_of_the_weights_add_up(dtype: torch.dtype) -> None:
    weight = nn.Parameter(torch.ones(4, dtype=dtype))
    opt = IVON([weight], lr=1e-4, ess=100.0, hess_init=1.0, betas=(0.0, 1.0 - 1e-9), weight_decay=0.0, seed=0)
    for _ in range(200):  # each moves the mean by 1e-4; half an ulp below 1 is 2e-3 in bfloat16, 2.4e-4 in float16
        in_block(opt, lambda: weight.float().sum())
        opt.step()
    mean = opt.state[weight]["mean"]
    assert bool(((mean < 0.99) & (mean > 0.97)).all())
    assert torch.equal(weight, mean.to(dtype))


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_a_hundred_samples_do_not_move_a_low_precision_mean(dtype: torch.dtype) -> None:
    _, opt = fresh(dtype)
    before = snapshot(opt)
    for index in range(100):
        with opt.sampled_params(train=index % 2 == 0):
            pass
    assert_same(before["weights"], snapshot(opt)["weights"])
    assert_same(before["state"], snapshot(opt)["state"])


def test_lean_memory_recovers_the_mean_to_an_ulp_per_draw() -> None:
    model, opt = fresh(memory="lean")
    before = weights(model)
    for _ in range(100):
        with opt.sampled_params():
            pass
    for old, new in zip(before, weights(model), strict=True):
        ulp = torch.finfo(torch.float32).eps * (old.abs() + 0.2)  # of the largest number on the way: m + sigma epsilon
        assert bool(((new - old).abs() <= 100 * ulp).all())


# Interrupts anywhere

SOURCE = str(Path(varlearn.__file__).parent)


def run_interrupted(action: Callable[[], None], count: int) -> str | None:
    """Run `action` with a KeyboardInterrupt at the count-th place of the package where Python looks for signals.

    These are the entry of a function and the return of a built-in one.

    Returns:
        Where that was, or None if there were fewer places.
    """
    seen, where = 0, None

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal seen, where
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(SOURCE):
            seen += 1
            if seen == count:
                where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        action()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return where


@pytest.mark.parametrize("train", [False, True], ids=["evaluation", "training"])
def test_an_interrupt_anywhere_in_entering_and_leaving_a_block(train: bool) -> None:
    """The weights are the mean afterwards, no sample is left open, no lock is held."""
    model, opt = fresh()
    start, state = {name: value.clone() for name, value in model.state_dict().items()}, opt.state_dict()

    def block() -> None:
        with opt.sampled_params(train=train):
            pass

    def enter_from_another_thread() -> None:
        with opt.sampled_params():
            pass

    lost, locked = [], []
    for count in itertools.count(1):
        opt = IVON(model.parameters(), **KWARGS)
        opt.load_state_dict(state)
        where = run_interrupted(block, count)
        if where is None:
            break
        if opt.is_sampled or any(not torch.equal(start[name], value) for name, value in model.state_dict().items()):
            lost.append(where)
        thread = threading.Thread(target=enter_from_another_thread, daemon=True)
        thread.start()
        thread.join(timeout=0.5)
        if thread.is_alive():
            locked.append(where)
        model.load_state_dict(start)
    assert count > 100
    assert not lost, f"the mean is lost: {lost}"
    assert not locked, f"other threads wait forever: {locked}"
