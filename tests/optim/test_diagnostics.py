"""What diagnostics() reports, on states made by hand."""

import math

import pytest
import torch
from torch import nn

from varlearn import IVON


def trained(steps: int, **kwargs: object) -> IVON:
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    opt = IVON([weight], **{"lr": 0.1, "ess": 100.0, "seed": 0, **kwargs})
    for _ in range(steps):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            (weight**2).sum().backward()
        opt.step()
    return opt


def test_the_statistics_of_a_known_state() -> None:
    opt = trained(1, hess_init=1.0, weight_decay=0.25, clip_radius=1.5, rescale_lr=False, debias=False)
    (weight,) = opt.param_groups[0]["params"]
    state = opt.state[weight]
    with torch.no_grad():
        weight.copy_(torch.tensor([0.0, 4.0]))
        state["hess"].copy_(torch.tensor([0.75, -0.21]))
        state["momentum"].copy_(torch.tensor([1.0, 1.0]))
    (report,) = opt.diagnostics()
    assert (report.params, report.step, report.hess_negative) == (2, 1, 1)
    assert report.hess_mean == pytest.approx(0.27)
    assert report.hess_min == pytest.approx(-0.21)
    assert report.hess_max == pytest.approx(0.75)
    assert report.hess_moved == pytest.approx((0.25 + 1.21) / 2 / 1.25)
    assert report.std_max == pytest.approx(1 / math.sqrt(100 * 0.04), rel=1e-5)
    assert report.std_min == pytest.approx(0.1)
    # (g + delta m) / (h + delta): 1 / 1 and 2 / 0.04, the second clipped to 1.5.
    assert report.clipped == 0.5
    assert report.effective_step == pytest.approx(0.1 * math.sqrt((1.0 + 1.5**2) / 2))


def test_an_optimizer_that_has_drawn_nothing_has_nothing_to_say() -> None:
    assert IVON([nn.Parameter(torch.ones(1))], lr=0.1, ess=1.0).diagnostics() == []


def test_a_run_whose_h_never_moves_is_told_so() -> None:
    (report,) = trained(150, betas=(0.9, 0.99999)).diagnostics()
    assert report.advice is not None
    assert "presets.auto" in report.advice
    (report,) = trained(150, betas=(0.9, 0.99)).diagnostics()
    assert report.advice is None


def test_diagnostics_change_nothing() -> None:
    opt = trained(3)
    before = torch.cat([opt.state[p][name] for p in opt.state for name in ("hess", "momentum")])
    opt.diagnostics()
    after = torch.cat([opt.state[p][name] for p in opt.state for name in ("hess", "momentum")])
    assert torch.equal(before, after)
