"""An optimizer that was refused something, or failed, does what one does that was never disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.optim.contract import TinyNet, assert_same, in_block, mse, snapshot
from varlearn import IVON

KWARGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.99), "seed": 1}


def fresh(steps: int = 1, **kwargs: Any) -> tuple[TinyNet, IVON]:
    model = TinyNet()
    opt = IVON(model.parameters(), **{**KWARGS, **kwargs})
    for index in range(steps):
        in_block(opt, lambda index=index: mse(model, index))
        opt.step()
    opt.zero_grad()
    return model, opt


@contextmanager
def unchanged(opt: IVON) -> Iterator[None]:
    """Weights, state, groups and step counts are the same afterwards, and the weights are the mean."""
    before = snapshot(opt)
    yield
    assert not opt.is_sampled
    assert_same(before, snapshot(opt))


def assert_goes_on(model: TinyNet, opt: IVON) -> None:
    """The optimizer does what one does that was never disturbed."""
    other, other_opt = fresh(
        steps=1, **{k: v for k, v in opt.param_groups[0].items() if k in ("memory", "mc_samples", "foreach", "fused")}
    )
    for a_model, an_opt in ((model, opt), (other, other_opt)):
        in_block(an_opt, lambda a_model=a_model: mse(a_model, 7))
        an_opt.step()
    assert_same(snapshot(opt), snapshot(other_opt))
