"""Addresses that are kept between steps: used while nothing moves, and never after."""

import signal
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from varlearn.optim.addresses import Addresses, Row
from varlearn.optim.native_batch import Batch, all_finite, step
from varlearn.optim.tasks import Draw, Noise, Step

from tests.optim.test_native import has_compiler
from varlearn import IVON
from varlearn.core.noise import derive_key, fold_in
from varlearn.optim import native

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C compiler")

# Copies stream past the cache from 2^22 elements on.
STREAMING = (1 << 22) + 5
SIZES = [3, 16, 130, 5000]


def addresses(param: Tensor, index: int = 0, is_lean: bool = False) -> Addresses:
    state = {"step": 0, "momentum": torch.zeros_like(param), "hess": torch.rand_like(param) + 0.1}
    group = {"fused": None, "foreach": None, "memory": "lean" if is_lean else "fast"}
    at = Addresses.of(param, state, group, index, "native")
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


def test_copies_are_in_one_block_that_is_kept() -> None:
    params = [nn.Parameter(torch.randn(shape)) for shape in ((5, 4), (7,), (3, 3))]
    opt = IVON(params, lr=0.1, ess=100.0, fused=True)

    def address() -> int:
        with opt.sampled_params():
            return opt._weights._native._copies.data_ptr()

    at = address()
    assert opt._weights._native._copies.numel() == 32 + 16 + 16
    assert address() == at
    params[0].data = params[0].data.clone()
    assert address() == at
