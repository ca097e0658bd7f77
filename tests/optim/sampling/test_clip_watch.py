"""Clipping between backward and step is noticed, and only clipping by one factor."""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from varlearn.optim.sampling.clip_watch import ClipWatch


def watched(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], ClipWatch]:
    params: list[Tensor] = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in shapes]
    watch = ClipWatch()
    watch.watch(params)
    return params, watch


def backward(params: list[Tensor], factor: float = 3.0) -> None:
    sum((factor * param.float() ** 2).sum() for param in params).backward()  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_factor_undoes_the_clipping(dtype: torch.dtype) -> None:
    params, watch = watched((20,), (5, 5), dtype=dtype)
    backward(params)
    total = float(clip_grad_norm_(params, 1.0))
    tolerance = 1e-4 if torch.finfo(dtype).bits >= 32 else 1e-2
    assert watch.factor() == pytest.approx(total, rel=tolerance)


@pytest.mark.parametrize("clip", ["clip_grad_norm_", "through .data", "through detach()"])
@pytest.mark.parametrize("size", [20, 5_000])  # copied, and judged by norms
def test_small_and_large_gradients_are_watched_alike(size: int, clip: str) -> None:
    params, watch = watched((size,))
    backward(params)
    grad = params[0].grad
    assert grad is not None
    total = float(grad.norm())
    match clip:
        case "clip_grad_norm_":
            clip_grad_norm_(params, 1.0)
        case "through .data":
            grad.data.mul_(1.0 / total)
        case _:
            grad.detach().mul_(1.0 / total)
    assert watch.factor() == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("size", [20, 5_000])
def test_without_clipping_the_factor_is_exactly_one(size: int) -> None:
    params, watch = watched((size,), (5, 5))
    backward(params)
    clip_grad_norm_(params, 1e6)
    assert watch.factor() == 1.0
    assert watch.factor() == 1.0  # nothing was seen since


def test_accumulation_adds_up_before_it_is_clipped() -> None:
    params, watch = watched((20,))
    for _ in range(3):
        backward(params)
    total = float(clip_grad_norm_(params, 0.5))
    assert watch.factor() == pytest.approx(2.0 * total, rel=1e-5)


@pytest.mark.parametrize("limit", [0.1, 1.0, 3.0])
def test_clipping_of_single_elements_has_no_factor(limit: float) -> None:
    params, watch = watched((20,), (50,))
    backward(params)
    clip_grad_value_(params, limit)
    assert watch.factor() == 1.0


def test_a_gradient_of_zero_or_none_leaves_the_judgement_to_another_parameter() -> None:
    params, watch = watched((20,), (30,), (40,))
    ((params[0] * 0.0).sum() + (params[2] ** 2).sum()).backward()
    for param in (params[0], params[2]):
        assert param.grad is not None
        param.grad.mul_(0.25)
    assert watch.factor() == pytest.approx(4.0)


def test_a_gradient_that_somebody_else_put_there_says_nothing() -> None:
    params, watch = watched((20,))
    backward(params)
    params[0].grad = torch.full_like(params[0], 1e-3)
    assert watch.factor() == 1.0


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_gradient_that_is_not_finite_has_no_factor(bad: float) -> None:
    params, watch = watched((20,))
    (params[0] * torch.tensor([bad, *range(19)])).sum().backward()
    assert watch.factor() == 1.0


def test_the_smallest_parameters_with_some_elements_are_watched() -> None:
    params, watch = watched((1000,), (3,), (20,), (17,), (16,))
    assert [len(param) for param, _ in watch._hooks] == [16, 17, 20]
    watch.watch(params[:2])
    assert [len(param) for param, _ in watch._hooks] == [1000, 3]
    backward(params)
    assert set(watch._seen) == {id(params[0]), id(params[1])}


def test_a_sparse_gradient_is_left_alone() -> None:
    table = nn.Embedding(20, 3, sparse=True)
    watch = ClipWatch()
    watch.watch([table.weight])
    table(torch.tensor([1, 2])).sum().backward()
    assert watch.factor() == 1.0


def test_parameters_do_not_keep_the_watch_alive() -> None:
    params, watch = watched((20,))
    alive = weakref.ref(watch)
    del watch
    gc.collect()
    assert alive() is None
    backward(params)
