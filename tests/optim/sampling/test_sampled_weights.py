"""Samples that overlap, close in any order or belong to other threads: the mean always comes back."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.optim.contract import TinyNet, assert_same, mse, snapshot, weights
from tests.optim.test_mean import ALL, KWARGS, fresh, step
from varlearn import IVON

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
