"""Addresses that are kept between steps: used while nothing moves, and never after."""

import itertools
import signal
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.test_native import has_compiler
from varlearn import IVON
from varlearn.core.noise import derive_key, fold_in
from varlearn.optim import native
from varlearn.optim.native_batch import Addresses, Batch, Row, all_finite, step
from varlearn.optim.tasks import Draw, Noise, Step

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C compiler")

# Copies stream past the cache from 2^22 elements on.
STREAMING = (1 << 22) + 5
SIZES = [3, 16, 130, 5000]


def addresses(param: Tensor, index: int = 0, is_lean: bool = False) -> Addresses:
    state = {"step": 0, "momentum": torch.zeros_like(param), "hess": torch.rand_like(param) + 0.1}
    at = Addresses.of(param, state, index, is_lean)
    assert at is not None
    return at


@pytest.mark.parametrize("size", [100, 5000, STREAMING])
@pytest.mark.parametrize("offset", [0, 1])
def test_a_sample_goes_in_and_comes_out(size: int, offset: int) -> None:
    group: dict[str, Any] = {}
    params = [torch.randn(size + offset)[offset:], torch.randn(7)]
    batch = Batch([(addresses(param, index=3 * k), group) for k, param in enumerate(params)])
    draw = Noise(derive_key(0, 1), 30.0, 0.5)
    before, expected = [param.clone() for param in params], [torch.empty_like(param) for param in params]
    for k, (param, out) in enumerate(zip(params, expected, strict=True)):
        noise = draw._replace(key=fold_in(draw.key, 3 * k))
        native.draw([Draw(out, param, batch.members[k][0].state["hess"], noise)])
    batch.put_in({id(group): draw})
    assert batch.is_in.value == 1
    assert all(map(torch.equal, params, expected))
    batch.take_out()
    assert batch.is_in.value == 0
    assert all(map(torch.equal, params, before))
    batch.take_out()  # a second time it does nothing
    assert all(map(torch.equal, params, before))


def test_lean_and_kept_parameters_and_groups_go_together() -> None:
    groups: list[dict[str, Any]] = [{"name": 0}, {"name": 1}]
    params = [torch.randn(size) for size in SIZES]
    before = [param.clone() for param in params]
    members = [(addresses(param, k, is_lean=k % 2 == 1), groups[k // 2]) for k, param in enumerate(params)]
    batch = Batch(members)
    draws = {id(groups[0]): Noise(5, 10.0, 0.1), id(groups[1]): Noise(6, 1e6, 0.1)}
    batch.put_in(draws)
    spreads = [float((new - old).std()) for new, old in zip(params, before, strict=True)]
    assert min(spreads[:2]) > 0.05
    assert 0.0 < max(spreads[2:]) < 0.01
    batch.take_out()
    for k, (new, old) in enumerate(zip(params, before, strict=True)):
        torch.testing.assert_close(new, old, rtol=1e-6 * (k % 2), atol=1e-6 * (k % 2))


@pytest.mark.parametrize("is_lean", [False, True])
@pytest.mark.parametrize("delay", [0.0005, 0.002, 0.005, 0.02])
def test_an_interrupt_finds_all_or_nothing(delay: float, is_lean: bool) -> None:
    group: dict[str, Any] = {}
    params = [torch.ones(1_000_000) for _ in range(3)]
    batch = Batch([(addresses(param, k, is_lean), group) for k, param in enumerate(params)])

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        while True:  # the alarm ends it: in the kernel, around it, or in between
            batch.put_in({id(group): Noise(1, 1e4, 1.0)})
            batch.take_out()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGALRM, before)
    batch.take_out()
    for param in params:
        torch.testing.assert_close(param, torch.ones_like(param), rtol=0.0, atol=1e-4 if is_lean else 0.0)


def test_a_step_is_the_native_path_s() -> None:
    from varlearn.core.update import Hyper

    hyper = Hyper(0.1, 50.0, 0.01, 0.9, 0.99, 1.0, 0.1)
    outcomes = []
    for direct in (True, False):
        torch.manual_seed(0)
        found, rows, tasks, kind = [], [], [], None
        for k, size in enumerate(SIZES):
            param, grad = torch.randn(size), torch.randn(size)
            at = addresses(param, k)
            state = at.state
            own = Noise(fold_in(9, k), 50.0, 0.01)
            task = Step(
                param, param, state["momentum"], state["hess"], grad, "reparam", None, own, 0.5, 2.0, 0.5, hyper
            )
            kind = kind or task._replace(noise=own._replace(key=9))
            rows.append(Row(at, grad, kind))
            tasks.append(task)
            found += [param, state["momentum"], state["hess"]]
        step(rows) if direct else native.step(tasks)
        outcomes.append(found)
    assert all(map(torch.equal, *outcomes))


def test_all_finite_looks_at_every_gradient() -> None:
    params = [torch.zeros(size) for size in SIZES]
    rows = [(addresses(param), torch.zeros_like(param)) for param in params]
    assert all_finite(rows)
    assert all_finite([])
    rows[2][1][129] = torch.nan
    assert not all_finite(rows)


def test_addresses_hold_until_something_moves() -> None:
    def param() -> Tensor:
        return torch.zeros(4, 6)

    def moved(p: Tensor, at: Addresses) -> None:
        p.data = p.data.clone()

    def transposed(p: Tensor, at: Addresses) -> None:
        p.data = p.data.view(6, 4).t()

    def cast(p: Tensor, at: Addresses) -> None:
        p.data = p.data.bfloat16()

    def shrunk(p: Tensor, at: Addresses) -> None:
        p.resize_(2, 3)

    def emptied(p: Tensor, at: Addresses) -> None:
        p.untyped_storage().resize_(0)

    def another_hess(p: Tensor, at: Addresses) -> None:
        at.state["hess"] = at.state["hess"].clone()

    def moved_hess(p: Tensor, at: Addresses) -> None:
        at.state["hess"].data = at.state["hess"].data.clone()

    def half_a_momentum(p: Tensor, at: Addresses) -> None:
        at.state["momentum"].data = at.state["momentum"].data[:2]

    def no_momentum(p: Tensor, at: Addresses) -> None:
        del at.state["momentum"]

    def a_prior(p: Tensor, at: Addresses) -> None:
        at.state["prior_mean"] = torch.zeros(4, 6)

    for change in (
        moved, transposed, cast, shrunk, emptied, another_hess, moved_hess, half_a_momentum, no_momentum, a_prior
    ):  # fmt: skip
        p = param()
        at = addresses(p)
        assert at.hold()
        assert at.take(torch.zeros(4, 6))
        change(p, at)
        assert not at.hold(), change.__name__
        assert not at.take(torch.zeros(4, 6)), change.__name__


@pytest.mark.parametrize(
    "grad",
    [
        torch.zeros(4, 6, dtype=torch.float64),
        torch.zeros(4, 5),
        torch.zeros(6, 4).t(),
        torch.zeros(4, 6).to_sparse(),
        torch.zeros(4, 6, device="meta"),
        torch._efficientzerotensor(4, 6),
        torch.zeros(1).expand(4, 6),
    ],
)
def test_gradients_of_another_kind_are_not_taken(grad: Tensor) -> None:
    assert not addresses(torch.zeros(4, 6)).take(grad)


# Whole optimizers, against one that looks at every tensor anew


class Trial:
    """A small model whose parameters are pushed around, and its twin on the plain path."""

    def __init__(self, **kwargs: Any) -> None:
        torch.manual_seed(0)
        first = [nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.randn(7)), nn.Parameter(torch.randn(3, 3))]
        self.models = [first, [nn.Parameter(p.detach().clone()) for p in first]]
        options = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.99), "seed": 3, **kwargs}
        self.opts = [
            IVON(self.models[0], fused=True, **options),
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
def test_parameters_move_between_steps(change: Any, memory: str) -> None:
    trial = Trial(memory=memory)
    for _ in range(3):
        trial.step()
        for params in trial.models:
            change(params)
    trial.step()


@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("change", [clone, forget_gradient, strange_gradient])
def test_parameters_move_between_a_sample_and_its_step(change: Any, memory: str) -> None:
    trial = Trial(memory=memory)
    for _ in range(3):
        trial.step(between=change)


@pytest.mark.parametrize("memory", ["fast", "lean"])
def test_a_parameter_gets_other_memory_while_a_sample_is_in_it(memory: str) -> None:
    trial = Trial(memory=memory)
    for _ in range(3):
        trial.step(inside=clone)


def test_a_parameter_is_cast_while_a_sample_is_in_it_and_back() -> None:
    trial = Trial()
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


def test_a_sample_is_shown_again_after_the_model_has_moved() -> None:
    trial = Trial()
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


def test_groups_and_paths_change_between_steps() -> None:
    trial = Trial()
    trial.step()
    for params, opt in trial.each():
        params.append(nn.Parameter(torch.ones(9)))
        opt.add_param_group({"params": params[-1:], "lr": 0.3, "ess": 7.0})
    trial.step()
    trial.opts[0].param_groups[0]["memory"] = "lean"
    trial.step()
    trial.opts[0].param_groups[0]["fused"] = False
    trial.step()
    trial.opts[0].param_groups[0] |= {"fused": True, "memory": "fast"}
    trial.step()


def test_a_state_that_is_loaded_or_replaced_is_used() -> None:
    trial = Trial()
    trial.step()
    for params, opt in trial.each():
        opt.load_state_dict(opt.state_dict())
        opt.state[params[1]] = {name: value for name, value in opt.state[params[1]].items()}
        opt.state[params[1]]["hess"] = torch.full((7,), 2.0)
        del opt.state[params[2]]
    trial.step()
    assert trial.opts[0].state[trial.models[0][2]]["step"] == 1


def test_copies_are_in_one_block_that_is_kept() -> None:
    trial = Trial()
    trial.step()
    opt = trial.opts[0]
    at = opt._weights._batch._copies.data_ptr()
    assert opt._weights._batch._copies.numel() == 32 + 16 + 16
    for _ in range(2):
        trial.step()
    clone(trial.models[0])
    clone(trial.models[1])
    trial.step()
    assert opt._weights._batch._copies.data_ptr() == at


def test_a_hundred_steps_are_the_plain_path_s() -> None:
    for kwargs in ({}, {"max_grad_norm": 0.5, "prior_mean": 0.3}, {"hess_approx": "squared_gradient"}):
        trial = Trial(**kwargs)
        for _ in itertools.repeat(None, 100):
            trial.step()
