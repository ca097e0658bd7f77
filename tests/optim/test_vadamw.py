"""Variational AdamW as an optimizer: samples, schedules, saving, and what its posterior is."""

import copy
import io
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from tests.optim.contract import PATHS, TinyNet, assert_same, in_block, mse, snapshot, weights
from varlearn import DiagGaussian
from varlearn import posterior as posteriors
from varlearn.core.noise import fold_in, normal_
from varlearn.optim import VAdamW
from varlearn.optim.annealing import annealed

KWARGS: dict[str, Any] = {"lr": 0.02, "n": 20, "batch_size": 8, "betas": (0.9, 0.99), "seed": 1}
COLD: dict[str, Any] = {"ess": 1e300, "prior_width": 1e-30}


def fresh(**options: Any) -> tuple[TinyNet, VAdamW]:
    model = TinyNet()
    return model, VAdamW(model.parameters(), **{**KWARGS, **options})


def train(model: nn.Module, opt: VAdamW, steps: range) -> None:
    for step in steps:
        in_block(opt, lambda step=step: mse(model, step))
        opt.step()


# Samples


@pytest.mark.parametrize("path", ["loop", "foreach", "fused"])
def test_several_samples_are_one_step_with_their_mean_gradient(path: str) -> None:
    model, opt = fresh(**PATHS[path])
    train(model, opt, range(2))
    other, other_opt = copy.deepcopy((model, opt))
    grads: list[list[Tensor]] = []

    def closure() -> Tensor:
        opt.zero_grad()
        loss = mse(model, 2)
        loss.backward()
        grads.append([param.grad.clone() for param in model.parameters() if param.grad is not None])
        return loss

    opt.param_groups[0]["mc_samples"] = 3
    opt.step(closure)
    assert not torch.equal(grads[0][0], grads[1][0])
    with other_opt.sampled_params(train=True):
        for param, *each in zip(other.parameters(), *grads, strict=True):
            param.grad = torch.stack(each).mean(0)
    other_opt.step()
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
        for name in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(opt.state[ours][name], other_opt.state[theirs][name], rtol=1e-5, atol=1e-9)


def test_evaluation_between_and_inside_steps_does_not_change_training() -> None:
    (model, opt), (other, other_opt) = fresh(), fresh()
    train(model, opt, range(12))
    for step in range(12):
        with other_opt.sampled_params():
            mse(other, step)
        with other_opt.sampled_params(train=True):
            other_opt.zero_grad()
            mse(other, step).backward()
            with other_opt.sampled_params():
                mse(other, step)
        other_opt.step()
        DiagGaussian.from_optimizer(other, other_opt)
        other_opt.kl()
        other_opt.diagnostics()
    assert_same(snapshot(opt), snapshot(other_opt))


def test_a_nan_gradient_changes_nothing() -> None:
    model, opt = fresh()
    train(model, opt, range(3))
    before = snapshot(opt)
    in_block(opt, lambda: mse(model) * math.nan)
    opt.step()
    after = snapshot(opt)
    assert after["groups"][0].pop("draws") == before["groups"][0].pop("draws") + 1
    assert_same(before, after)
    assert opt.skipped_steps == 1


def test_before_the_first_step_samples_are_the_mean() -> None:
    model, opt = fresh()
    before = weights(model)
    with opt.sampled_params():
        assert_same(before, weights(model))
    train(model, opt, range(1))
    before = weights(model)
    with opt.sampled_params():
        assert not torch.equal(before[0], model.first.weight)
    assert_same(before, weights(model))


def test_hand_in_hess_is_refused() -> None:
    model, opt = fresh()
    with opt.sampled_params(train=True), pytest.raises(RuntimeError, match="hand_in_hess.*use IVON"):
        opt.hand_in_hess({model.scale: torch.ones(())})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": "fast"}, "lr='fast' must be a number .* AdamW's default is 1e-3"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0 must be .* AdamW's default is 0.01"),
        ({"betas": (0.9, 1.0)}, "beta2=1.0 must be .* 0.999 is usual"),
        ({"epochs": 3}, r"epochs tell no steps; pass steps, or use for_loader\(\)"),
    ],
)
def test_messages_are_about_adamws_settings(options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        VAdamW.for_model(torch.nn.Linear(1, 1), **{"n": 10, "batch_size": 2, **options})


# Schedules of lambda


def test_lambda_falls_to_n_in_ten_passes() -> None:
    model, opt = fresh(n=16.0)
    seen = []
    for step in range(25):
        seen.append(opt.param_groups[0]["ess"])
        train(model, opt, range(step, step + 1))
    assert seen == pytest.approx([16.0 * max(1.0, 100.0 ** (1.0 - step / 20.0)) for step in range(25)])
    assert [annealed(10, cold=4.0, passes=2.0)(passes) for passes in (0, 1, 2, 3)] == [40.0, 20.0, 10.0, 10.0]


def test_groups_have_their_own_n_or_their_own_constant() -> None:
    first, second, third = (nn.Parameter(torch.ones(2, 2)) for _ in range(3))
    groups = [{"params": [first]}, {"params": [second], "n": 40.0}, {"params": [third], "ess": 7.0}]
    opt = VAdamW(groups, **KWARGS)
    assert [group["ess"] for group in opt.param_groups] == [2000.0, 4000.0, 7.0]
    in_block(opt, lambda: (first + second + third).square().sum())
    opt.step()
    expected = [annealed(20)(8 / 20), annealed(40)(8 / 40), 7.0]
    assert [group["ess"] for group in opt.param_groups] == pytest.approx(expected)


def test_a_function_of_the_passes_is_copied_but_not_saved() -> None:
    def schedule(passes: float) -> float:
        return 50.0 + passes

    model, opt = fresh(ess=schedule)
    train(model, opt, range(5))
    assert opt.param_groups[0]["ess"] == pytest.approx(50.0 + 5 * 8 / 20)
    other, other_opt = copy.deepcopy((model, opt))
    train(other, other_opt, range(5, 6))
    assert other_opt.param_groups[0]["ess"] == pytest.approx(50.0 + 6 * 8 / 20)
    resumed, resumed_opt = fresh(ess=schedule)
    resumed.load_state_dict(model.state_dict())
    resumed_opt.load_state_dict(opt.state_dict())
    train(resumed, resumed_opt, range(5, 6))
    assert_same(snapshot(other_opt), snapshot(resumed_opt))


def test_a_run_of_one_pass_stays_cold() -> None:
    model, opt = fresh(n=80)
    train(model, opt, range(10))
    assert opt.param_groups[0]["ess"] == pytest.approx(80.0 * 100.0**0.9)


# Saving


@pytest.mark.parametrize("path", PATHS.values(), ids=list(PATHS))
def test_a_run_resumes_bitwise_in_the_middle_of_annealing_and_between_two_measurements(path: dict[str, Any]) -> None:
    model, opt = fresh(**path)
    train(model, opt, range(13))
    assert 20.0 < opt.param_groups[0]["ess"] < 2000.0
    file = io.BytesIO()
    torch.save((model.state_dict(), opt.state_dict()), file)
    pickled = pickle.dumps((model, opt))
    train(model, opt, range(13, 40))
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed, resumed_opt = fresh(**path)
    resumed.load_state_dict(saved[0])
    resumed_opt.load_state_dict(saved[1])
    train(resumed, resumed_opt, range(13, 40))
    assert_same(snapshot(opt), snapshot(resumed_opt))
    other, other_opt = pickle.loads(pickled)
    train(other, other_opt, range(13, 40))
    assert_same(snapshot(opt), snapshot(other_opt))


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1, "lr": 0.005}], ids=["default", "other"])
def test_a_run_of_adamw_goes_on(options: dict[str, Any]) -> None:
    """Its state dict is a warm start: settings and moments are AdamW's, n, batch size and prior this optimizer's."""
    model, other = TinyNet(), TinyNet()
    adamw = torch.optim.AdamW(model.parameters(), foreach=False, fused=False, **{"lr": 0.01, **options})
    for step in range(5):
        adamw.zero_grad()
        mse(model, step).backward()
        adamw.step()
    other.load_state_dict(model.state_dict())
    opt = VAdamW(other.parameters(), 0.5, n=20, batch_size=8, **COLD)
    opt.load_state_dict(adamw.state_dict())
    assert opt.param_groups[0]["lr"] == options.get("lr", 0.01)
    for step in range(5, 10):
        adamw.zero_grad()
        mse(model, step).backward()
        adamw.step()
        in_block(opt, lambda step=step: mse(other, step))
        opt.step()
    assert_same(weights(model), weights(other))
    assert opt.state[other.scale]["step"] == 10


def test_lambda_follows_the_steps_of_a_loaded_run() -> None:
    model = TinyNet()
    adamw = torch.optim.AdamW(model.parameters())
    for step in range(10):
        mse(model, step).backward()
        adamw.step()
    opt = VAdamW(model.parameters(), **KWARGS)
    opt.load_state_dict(adamw.state_dict())
    assert opt.param_groups[0]["ess"] == pytest.approx(annealed(20)(10 * 8 / 20))


def test_a_state_of_another_optimizer_is_refused() -> None:
    model, opt = fresh()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    mse(model).backward()
    sgd.step()
    before = snapshot(opt)
    with pytest.raises(ValueError, match="lacks.*exp_avg"):
        opt.load_state_dict(sgd.state_dict())
    assert_same(before, snapshot(opt))


# The posterior


def test_the_posterior_is_what_samples_are_drawn_from() -> None:
    """The noise of an evaluation sample, made again, times the posterior's sigma is what the sample adds."""
    model, opt = fresh(ess=100.0)
    train(model, opt, range(11))
    posterior = DiagGaussian.from_optimizer(model, opt)
    key = opt._noise(opt.param_groups[0], train=False).key
    with opt.sampled_params():
        for index, (name, param) in enumerate(model.named_parameters()):
            epsilon = normal_(torch.empty(param.numel()), fold_in(key, index)).view_as(param)
            expected = posterior.mean[name] + posterior.std[name] * epsilon
            torch.testing.assert_close(param.detach(), expected, rtol=1e-5, atol=1e-7)


def test_the_spread_of_many_samples_is_sigma() -> None:
    model, opt = fresh(ess=100.0)
    train(model, opt, range(11))
    posterior = DiagGaussian.from_optimizer(model, opt)
    draws: list[Tensor] = []
    for _ in range(2000):
        with opt.sampled_params():
            draws.append(torch.cat([param.detach().flatten() for param in model.parameters()]))
    sigma = torch.cat([posterior.std[name].flatten() for name, _ in model.named_parameters()])
    mean = torch.cat([param.detach().flatten() for param in model.parameters()])
    found = torch.stack(draws)
    # A ratio of standard deviations has the error 1 / sqrt(2 * 2000), 1.6%; a mean sigma / sqrt(2000).
    torch.testing.assert_close(found.std(0) / sigma, torch.ones_like(sigma), rtol=0.08, atol=0.0)
    assert float(((found.mean(0) - mean) / sigma).abs().max()) < 5.0 / math.sqrt(2000)


def test_sigma_and_kl_are_the_formulas() -> None:
    model, opt = fresh(ess=100.0)
    train(model, opt, range(11))
    posterior, kl = DiagGaussian.from_optimizer(model, opt), 0.0
    for name, param in model.named_parameters():
        state = opt.state[param]
        vhat = state["exp_avg_sq"].double() / (1.0 - 0.99**11)
        s = state["prior_std"]
        variance = 1.0 / (100.0 * 8.0 * vhat + 1.0 / s**2)
        torch.testing.assert_close(posterior.std[name].double(), variance.sqrt(), rtol=1e-5, atol=0.0)
        ratio = variance / s**2
        kl += 0.5 * float((ratio - 1.0 - ratio.log() + (param.detach().double() / s) ** 2).sum())
    assert float(opt.kl()) == pytest.approx(kl, rel=1e-5)
    assert float(posteriors.kl(posterior, posterior.prior())) == pytest.approx(kl, rel=1e-4)


def test_diagnostics_are_the_formulas() -> None:
    model, opt = fresh(ess=100.0)
    assert opt.diagnostics() == []
    train(model, opt, range(11))
    (found,) = opt.diagnostics()
    curvature, std, prior, noise = [], [], [], []
    for param in model.parameters():
        state = opt.state[param]
        curvature.append((8.0 * state["exp_avg_sq"].double() / (1.0 - 0.99**11)).flatten())
        prior.append(torch.full_like(curvature[-1], state["prior_std"]))
        std.append((100.0 * curvature[-1] + prior[-1] ** -2).rsqrt())
        noise.append(float(std[-1].square().mean().sqrt() / param.detach().square().mean().sqrt()))
    b_v, sigma, s = torch.cat(curvature), torch.cat(std), torch.cat(prior)
    assert (found.params, found.step, found.ess, found.curvature_start) == (27, 11, 100.0, 0.0)
    assert found.std_mean == pytest.approx(float(sigma.mean()), rel=1e-5)
    assert found.effective_params == pytest.approx(float((1.0 - sigma**2 / s**2).sum()), rel=1e-5)
    assert found.loss_rise == pytest.approx(float((b_v * sigma**2).sum() / 2.0), rel=1e-5)
    ratios = found.noise_min, found.noise_median, found.noise_max
    assert ratios == pytest.approx((min(noise), sorted(noise)[2], max(noise)), rel=1e-5)
    for share, value in ((0.05, found.curvature_low), (0.5, found.curvature_median), (0.95, found.curvature_high)):
        assert value == pytest.approx(float(b_v.quantile(share, interpolation="lower")), rel=1e-5)
    assert found.by_native + found.by_foreach + found.by_loop == 5


# Settings


def test_a_loader_tells_n_and_batch_size() -> None:
    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            return iter(())

    net, data = nn.Linear(1, 1), torch.zeros(30, 1)
    sampler = torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(data), 5, False)
    for loader in (DataLoader(data, batch_size=5), DataLoader(data, batch_sampler=sampler)):  # type: ignore[arg-type]
        group = VAdamW.for_loader(net, loader).param_groups[0]
        assert (group["n"], group["batch_size"]) == (30, 5)
    group = VAdamW.for_loader(net, DataLoader(data, batch_size=5), batch_size=20).param_groups[0]  # type: ignore[arg-type]
    assert (group["n"], group["batch_size"]) == (30, 20)
    with pytest.raises(ValueError, match=r"does not tell \['n'\]"):
        VAdamW.for_loader(net, DataLoader(Stream(), batch_size=5))


def test_a_wrong_n_is_named_before_anything_is_computed() -> None:
    with pytest.raises(TypeError, match="n='many' must be a number"):
        VAdamW([nn.Parameter(torch.ones(1))], n="many", batch_size=1)  # type: ignore[arg-type]
