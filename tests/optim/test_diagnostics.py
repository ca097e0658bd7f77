"""What diagnostics() reports, on states made by hand."""

import math

import pytest
import torch
from torch import nn

from varlearn import IVON, VAdamW
from varlearn.optim import diagnostics


def trained(steps: int, **kwargs: object) -> IVON:
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    opt = IVON([weight], **{"lr": 0.1, "ess": 100.0, "seed": 0, **kwargs})
    for step in range(steps):
        opt.param_groups[0]["lr"] = 0.1 * (1.0 - step / steps)
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


def test_the_next_step_is_that_of_the_debiased_momentum() -> None:
    opt = trained(3, betas=(0.5, 0.9), hess_init=1.0, weight_decay=0.25, rescale_lr=False)
    (weight,) = opt.param_groups[0]["params"]
    state = opt.state[weight]
    with torch.no_grad():
        weight.zero_()
        state["hess"].fill_(0.75)
        state["momentum"].fill_(0.875)
    (report,) = opt.diagnostics()
    assert report.effective_step == pytest.approx(0.1 / 3 * 0.875 / (1 - 0.5**3))  # h + delta = 1


def test_the_posterior_of_a_known_state() -> None:
    """sigma^2 = 1 / (100 (h + 0.25)); h / (h + delta) is 0.75, 0 for a negative h, and 0.5."""
    first, second = nn.Parameter(torch.tensor([3.0, -4.0])), nn.Parameter(torch.tensor([0.0]))
    opt = IVON([first, second], lr=0.1, ess=100.0, hess_init=2.0, weight_decay=0.25)
    with opt.sampled_params():
        pass
    opt.state[first]["hess"].copy_(torch.tensor([0.75, -0.21]))
    opt.state[second]["hess"].copy_(torch.tensor([0.25]))
    (report,) = opt.diagnostics()
    assert (report.ess, report.curvature_start) == (100.0, 2.0)
    assert (report.curvature_low, report.curvature_median) == pytest.approx((-0.21, 0.25))
    assert report.std_mean == pytest.approx((0.1 + 0.5 + math.sqrt(0.02)) / 3, rel=1e-5)
    # The second tensor's weights are 0, so it has no ratio.
    ratio = math.sqrt((0.01 + 0.25) / (3.0**2 + 4.0**2))
    assert (report.noise_min, report.noise_median, report.noise_max) == pytest.approx((ratio,) * 3, rel=1e-5)
    assert report.effective_params == pytest.approx(1.25)
    assert report.loss_rise == pytest.approx(0.5 * (0.75 * 0.01 + 0.25 * 0.02))


def test_ratios_of_noise_to_weights_are_ordered() -> None:
    params = [nn.Parameter(torch.full((2,), size)) for size in (0.1, 10.0, 1.0)]
    opt = IVON(params, lr=0.1, ess=4.0, hess_init=0.25, weight_decay=0.0)
    with opt.sampled_params():
        pass
    (report,) = opt.diagnostics()
    assert (report.noise_min, report.noise_median, report.noise_max) == pytest.approx((0.1, 1.0, 10.0))


def test_a_flat_prior_leaves_all_parameters_to_the_data() -> None:
    (report,) = trained(1, weight_decay=0.0).diagnostics()
    assert report.effective_params == 2.0
    assert report.loss_rise == pytest.approx(2.0 / 200.0)


def test_quantiles_of_a_large_matrix_see_all_its_columns() -> None:
    weight = nn.Parameter(torch.ones(512, 1024))
    opt = IVON([weight], lr=0.1, ess=1.0, hess_init=1.0)
    with opt.sampled_params():
        pass
    opt.state[weight]["hess"][:, 1::2] = 5.0
    (report,) = opt.diagnostics()
    assert (report.curvature_low, report.curvature_high) == (1.0, 5.0)


@pytest.mark.parametrize(("size", "every"), [(1, 1), (10, 1), (3 * 65536 - 1, 1), (3 * 65536, 3), (5 * 65536, 5)])
def test_quantiles_are_of_65536_entries_at_least(size: int, every: int) -> None:
    values = torch.arange(float(size))
    assert torch.equal(diagnostics._some(values), values[::every])


def test_an_optimizer_that_has_drawn_nothing_has_nothing_to_say() -> None:
    assert IVON([nn.Parameter(torch.ones(1))], lr=0.1, ess=1.0).diagnostics() == []


def test_a_run_whose_h_never_moves_is_told_so() -> None:
    (report,) = trained(150, betas=(0.9, 0.99999)).diagnostics()
    assert report.advice is not None
    assert "presets.short_run" in report.advice
    (report,) = trained(150, betas=(0.9, 0.99)).diagnostics()
    assert report.advice is None


def test_diagnostics_change_nothing() -> None:
    opt = trained(3)
    before = torch.cat([opt.state[p][name] for p in opt.state for name in ("hess", "momentum")])
    opt.diagnostics()
    after = torch.cat([opt.state[p][name] for p in opt.state for name in ("hess", "momentum")])
    assert torch.equal(before, after)


def codes(opt: IVON | VAdamW) -> list[str]:
    return [finding.code for report in opt.diagnostics() for finding in report.findings]


def test_findings_are_the_advice_one_by_one() -> None:
    (report,) = trained(150, betas=(0.9, 0.99999)).diagnostics()
    assert [finding.code for finding in report.findings] == ["hess_not_learned"]
    assert report.advice == str(report.findings[0])


def test_an_h_that_grew_a_thousandfold_is_named() -> None:
    opt = trained(1)
    for state in opt.state.values():
        state["hess"].fill_(1e3)
    assert codes(opt) == ["hess_runaway"]


def test_steps_dropped_for_nan_are_named() -> None:
    opt = trained(1)
    (weight,) = opt.param_groups[0]["params"]
    for _ in range(11):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            (weight * math.nan).sum().backward()
        opt.step()
    assert opt.skipped_steps == 11
    assert codes(opt) == ["not_finite"]


@pytest.mark.parametrize("make", [IVON, VAdamW], ids=lambda cls: cls.__name__)
def test_a_weight_that_is_not_finite_is_named(make: type) -> None:
    weight = nn.Parameter(torch.ones(3))
    opt = make([weight], lr=0.1, **({"ess": 10.0} if make is IVON else {"n": 10, "batch_size": 5}))
    with opt.sampled_params(train=True):
        opt.zero_grad()
        weight.sum().backward()
    opt.step()
    assert codes(opt) == []
    with torch.no_grad():
        weight[1] = math.inf
    (finding,) = opt.diagnostics()[0].findings
    assert (finding.code, finding.sentence) == ("not_finite", "1 weight(s) are NaN or infinite.")


def test_variational_adamw_compares_ess_with_n() -> None:
    weight = nn.Parameter(torch.ones(3))
    opt = VAdamW([weight], lr=0.1, n=1_000, batch_size=10, ess=1.0)
    with opt.sampled_params():
        pass
    assert "ess_far_from_n" in codes(opt)


def test_noise_that_hides_the_weights_is_named() -> None:
    weight = nn.Parameter(0.1 * torch.ones(100))
    opt = IVON([weight], lr=0.1, ess=1.0, hess_init=0.1, weight_decay=0.0)  # sigma = 3.2
    with opt.sampled_params():
        pass
    (report,) = opt.diagnostics()
    assert report.noise_ratio == pytest.approx(31.6, rel=1e-3)
    assert codes(opt) == ["posterior_too_wide"]
