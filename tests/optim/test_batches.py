"""Parameters that are known from one step to the next, on the native and on the packed path."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.optim.test_native import has_compiler
from varlearn import IVON
from varlearn.optim import layout, packed


@pytest.fixture(params=["native", "joined", "cut"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """On the packed path, small parameters are joined; where pieces are tiny, all of them are large and are cut."""
    if request.param == "native" and not has_compiler():
        pytest.skip("no C compiler")
    if request.param == "cut":
        monkeypatch.setattr(layout, "_CPU_PIECE", 4)
        monkeypatch.setattr(layout, "_CPU_THREADS", 1)
    return request.param


class Trial:
    """A small model whose parameters are pushed around, and its twin on the plain path."""

    def __init__(self, path: str, **kwargs: Any) -> None:
        torch.manual_seed(0)
        shapes = (5, 4), (7,), (3, 3), (2, 3), (8,), (3,)
        first = [nn.Parameter(torch.randn(shape)) for shape in shapes]
        self.models = [first, [nn.Parameter(p.detach().clone()) for p in first]]
        options = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.99), "seed": 3, **kwargs}
        fused = path == "native"
        self.opts = [
            IVON(self.models[0], fused=fused, foreach=None if fused else True, **options),
            IVON(self.models[1], foreach=False, fused=False, **options),
        ]

    def each(self) -> list[tuple[list[nn.Parameter], IVON]]:
        return list(zip(self.models, self.opts, strict=True))

    def step(self, inside: Any = None, between: Any = None) -> None:
        for params, opt in self.each():
            with opt.sampled_params(train=True):
                opt.zero_grad()
                torch.stack([(p * p).sum() * (1.0 + k) for k, p in enumerate(params)]).sum().backward()
                if inside is not None:
                    inside(params)
            if between is not None:
                between(params)
            opt.step()
        self.compare()

    def compare(self) -> None:
        for one, other in zip(*self.models, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
            for name, value in self.opts[0].state[one].items():
                torch.testing.assert_close(value, self.opts[1].state[other][name], rtol=1e-4, atol=1e-5)


def clone(params: list[nn.Parameter]) -> None:
    params[0].data = params[0].data.clone()


def transpose(params: list[nn.Parameter]) -> None:
    params[2].data = params[2].data.t().contiguous().t()


def freeze(params: list[nn.Parameter]) -> None:
    params[1].requires_grad_(not params[1].requires_grad)


def forget_gradient(params: list[nn.Parameter]) -> None:
    params[1].grad = None


def strange_gradient(params: list[nn.Parameter]) -> None:
    assert params[2].grad is not None
    params[2].grad = params[2].grad.t().contiguous().t()


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("change", [clone, transpose, freeze])
def test_parameters_move_between_steps(path: str, change: Any, memory: str) -> None:
    trial = Trial(path, memory=memory)
    for _ in range(3):
        trial.step()
        for params in trial.models:
            change(params)
    trial.step()


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("change", [clone, forget_gradient, strange_gradient])
def test_parameters_move_between_a_sample_and_its_step(path: str, change: Any, memory: str) -> None:
    trial = Trial(path, memory=memory)
    for _ in range(3):
        trial.step(between=change)


@pytest.mark.parametrize("memory", ["fast", "lean"])
def test_a_parameter_gets_other_memory_while_a_sample_is_in_it(path: str, memory: str) -> None:
    trial = Trial(path, memory=memory)
    for _ in range(3):
        trial.step(inside=clone)


def test_a_parameter_is_cast_while_a_sample_is_in_it_and_back(path: str) -> None:
    trial = Trial(path)
    trial.step()

    def cast(params: list[nn.Parameter]) -> None:
        params[0].data = params[0].data.bfloat16()

    for params, opt in trial.each():
        mean = params[0].detach().clone()
        with opt.sampled_params():
            cast(params)
        assert torch.equal(params[0], mean.bfloat16())
        params[0].data = params[0].data.float()
    trial.step()


def test_a_sample_is_shown_again_after_the_model_has_moved(path: str) -> None:
    trial = Trial(path)
    trial.step()
    for params, opt in trial.each():
        opt.zero_grad()
        opt.train()
        opt.eval()
        clone(params)
        transpose(params)
        opt.train()
        torch.stack([(p * p).sum() for p in params]).sum().backward()
        opt.step()
        opt.zero_grad()
    trial.compare()
    trial.step()


def test_groups_and_paths_change_between_steps(path: str) -> None:
    trial = Trial(path)
    trial.step()
    for params, opt in trial.each():
        params.append(nn.Parameter(torch.ones(9)))
        opt.add_param_group({"params": params[-1:], "lr": 0.3, "ess": 7.0})
    trial.step()
    settings = dict(trial.opts[0].param_groups[0])
    for change in ({"memory": "lean"}, {"fused": False}, {"fused": None, "foreach": True, "memory": "fast"}, settings):
        trial.opts[0].param_groups[0] |= {
            name: change[name] for name in change if name in ("memory", "fused", "foreach")
        }
        trial.step()


def test_a_state_that_is_loaded_or_replaced_is_used(path: str) -> None:
    trial = Trial(path)
    trial.step()
    for params, opt in trial.each():
        opt.load_state_dict(opt.state_dict())
        opt.state[params[1]] = {name: value for name, value in opt.state[params[1]].items()}
        opt.state[params[1]]["hess"] = torch.full((7,), 2.0)
        del opt.state[params[2]]
    trial.step()
    assert trial.opts[0].state[trial.models[0][2]]["step"] == 1


def test_a_hundred_steps_are_the_plain_path_s(path: str) -> None:
    for kwargs in ({}, {"max_grad_norm": 0.5, "prior_mean": 0.3}, {"hess_approx": "squared_gradient"}):
        trial = Trial(path, **kwargs)
        for _ in itertools.repeat(None, 100):
            trial.step()


@pytest.mark.parametrize("train", [False, True])
def test_an_interrupted_sample_comes_out_of_the_pieces_it_is_in(train: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_CPU_PIECE", 4)
    monkeypatch.setattr(layout, "_CPU_THREADS", 1)
    trial = Trial("cut")
    trial.step()
    params, opt = trial.each()[0]
    mean = [param.detach().clone() for param in params]
    count, draw = len(opt._weights.packed._pieces), packed.draw_piece
    assert count > len(params)
    for last in range(count):
        calls = itertools.count()

        def interrupted(*args: Any, calls: Iterator[int] = calls, last: int = last) -> None:
            if next(calls) < last:
                draw(*args)
            else:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(packed, "draw_piece", interrupted)
            with pytest.raises(KeyboardInterrupt), opt.sampled_params(train=train):
                pass
        assert all(map(torch.equal, params, mean))
    trial.step()


def test_evaluation_between_a_sample_and_its_step_leaves_the_scores(path: str) -> None:
    trial = Trial(path)

    def evaluate(params: list[nn.Parameter]) -> None:
        opt = trial.opts[0] if params is trial.models[0] else trial.opts[1]
        with opt.sampled_params():
            pass

    for _ in range(3):
        trial.step(between=evaluate)


def test_a_parameter_without_a_gradient_falls_behind_and_is_taken_along_again(path: str) -> None:
    trial = Trial(path)
    trial.step(inside=forget_gradient)
    for _ in range(3):
        trial.step()
    steps = [trial.opts[0].state[param]["step"] for param in trial.models[0]]
    assert steps == [4, 3, 4, 4, 4, 4]


def test_dtypes_of_one_group_keep_their_own() -> None:
    """Of a group, float32 goes by the native path where there is one, float64 by the packed, bfloat16 by itself."""
    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float64, torch.float32]
    models = [[nn.Parameter(torch.linspace(1.0, 2.0, 6, dtype=dtype)) for dtype in dtypes] for _ in range(2)]
    settings = {"lr": 0.1, "ess": 1e4, "weight_decay": 1e-2, "seed": 3}
    opts = [IVON(models[0], **settings), IVON(models[1], **settings, foreach=False, fused=False)]
    for _ in range(5):
        for params, opt in zip(models, opts, strict=True):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                sum((param.double() ** 2).sum() for param in params).backward()
            opt.step()
    for param, other, dtype in zip(*models, dtypes, strict=True):
        tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
        torch.testing.assert_close(param, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("before", ["reparam", "squared_gradient"])
def test_the_estimate_of_h_is_the_one_that_is_asked_for_at_the_step(path: str, before: str) -> None:
    trial = Trial(path, hess_approx=before)
    after = ({"reparam", "squared_gradient"} - {before}).pop()

    def change(params: list[nn.Parameter]) -> None:
        opt = trial.opts[0] if params is trial.models[0] else trial.opts[1]
        opt.param_groups[0]["hess_approx"] = after

    trial.step()
    trial.step(between=change)
    trial.step()


def test_evaluation_alone_needs_no_memory_for_scores(path: str) -> None:
    opt = Trial(path).opts[0]
    with opt.sampled_params():
        pass
    assert not opt._weights.packed._scores._known
