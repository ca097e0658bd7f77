"""Floating point: hyperparameters in float64, low precision, and gradients chosen to break the posterior."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from varlearn import IVON
from varlearn.core import update
from varlearn.core.noise import fold_in, normal_

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
BETAS2 = [0.0, 0.5, 0.9, 0.99999]
DECAYS = [0.0, 1e-4, 10.0]
PATHS = {"loop": {"foreach": False, "fused": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def next_noise(opt: IVON, position: int) -> Tensor:
    """epsilon of the next training sample for parameter number `position`, one per group."""
    group = opt.param_groups[position]
    hess = opt.state[group["params"][0]]["hess"]
    return normal_(torch.empty_like(hess), fold_in(opt._noise(group, train=True).key, position))


def push(opt: IVON, gradients: dict[Tensor, Tensor]) -> None:
    """One step with these gradients, whatever the weights."""
    with opt.sampled_params(train=True):
        opt.zero_grad()
        for param, gradient in gradients.items():
            (param * gradient).sum().backward()
    opt.step()


def adversary(opt: IVON, position: int, step: int) -> Tensor:
    """Seven attacks at once, one per entry, by someone who knows epsilon; shape (7,).

    Halve the precision; the largest gradient with the noise, against it, in turns, always up, always down; and nothing.
    """
    group = opt.param_groups[position]
    param, beta2, decay = group["params"][0], group["betas"][1], group["weight_decay"]
    noise = next_noise(opt, position).double()
    hess = opt.state[param]["hess"].double()
    bound = torch.finfo(param.dtype).max
    halving = (hess - (hess + decay) / (1.0 - beta2)) / (noise * (group["ess"] * (hess + decay)).sqrt())
    turn = 1.0 if step % 2 else -1.0
    sign = noise.sign()
    attacks = [halving[0], bound * sign[1], -bound * sign[2], turn * bound * sign[3]]
    attacks += [torch.tensor(value, dtype=torch.float64) for value in (bound, -bound, 0.0)]
    return torch.stack(attacks).clamp(-bound, bound).to(param.dtype)


def assert_sound(opt: IVON, when: object) -> None:
    for group in opt.param_groups:
        for param in group["params"]:
            state = opt.state[param]
            std = update.std(state["hess"], group["ess"], group["weight_decay"])
            about = f"{when}: {param.dtype}, beta2={group['betas'][1]}, weight_decay={group['weight_decay']}"
            for name, value in {**state, "param": param, "std": std}.items():
                assert not isinstance(value, Tensor) or value.isfinite().all(), f"{name} = {value} at {about}"
            assert (std > 0).all(), f"std = {std} at {about}"


def precisions(opt: IVON) -> list[float]:
    """h + delta of the first entry of each group, whose adversary wants it as small as possible."""
    return [opt.state[g["params"][0]]["hess"][0].item() + g["weight_decay"] for g in opt.param_groups]


def assert_halved_at_most(opt: IVON, before: list[float], when: object) -> None:
    """Line 5's quadratic term: 1 + x + x^2 / 2 >= 1/2. Without it, this attack takes the precision to zero at once."""
    for group, old, new in zip(opt.param_groups, before, precisions(opt), strict=True):
        hess = opt.state[group["params"][0]]["hess"]
        rounding = 8.0 * torch.finfo(hess.dtype).eps * (abs(hess[0].item()) + group["weight_decay"])
        assert new >= 0.499 * old - rounding, f"{old} -> {new} at {when}: {group['betas']}, {group['weight_decay']}"


def attack(groups: list[tuple[torch.dtype, float, float]], steps: int, path: str, **options: Any) -> IVON:
    arguments = [
        {"params": [torch.zeros(7, dtype=dtype, requires_grad=True)], "betas": (0.9, beta2), "weight_decay": decay}
        for dtype, beta2, decay in groups
    ]
    opt = IVON(arguments, lr=0.1, ess=1000.0, weight_decay=0.0, seed=3, **PATHS[path], **options)
    with opt.sampled_params():  # creates the state, which the adversary reads
        pass
    for step in range(steps):
        before = precisions(opt)
        push(opt, {g["params"][0]: adversary(opt, i, step) for i, g in enumerate(opt.param_groups)})
        assert_halved_at_most(opt, before, f"step {step}")
        if step < 10 or step % 10 == 9:
            assert_sound(opt, f"step {step}")
    assert opt.skipped_steps == 0  # the gradients are finite, so none of the attacks was dodged
    return opt


# Each dtype and each weight decay with three or four values of beta2; all combinations where time does not matter.
MIXED = [(DTYPES[j], BETAS2[(i + j) % 4], DECAYS[i]) for i in range(3) for j in range(4)]
FASTEST = [(torch.float32, 0.0, 0.0), (torch.float64, 0.5, 0.0)]
ALL = list(itertools.product(DTYPES, BETAS2, DECAYS))


@pytest.mark.parametrize(
    ("groups", "steps", "path"),
    [
        pytest.param(FASTEST, 1000, "loop", id="fastest-loop"),
        pytest.param(MIXED, 150, "loop", id="mixed-loop"),
        pytest.param(MIXED[::2], 100, "foreach", id="mixed-foreach"),
        pytest.param([group for group in ALL if group[0] == torch.float32][::4], 150, "fused", id="float32-fused"),
        *(pytest.param(ALL, 1000, path, id=f"all-{path}", marks=pytest.mark.slow) for path in PATHS),
    ],
)
def test_worst_case_steps_leave_a_sound_posterior(
    groups: list[tuple[torch.dtype, float, float]], steps: int, path: str
) -> None:
    opt = attack(groups, steps, path)
    for group in opt.param_groups:
        param, (_, beta2) = group["params"][0], group["betas"]
        precision = opt.state[param]["hess"][0].item() + group["weight_decay"]
        if beta2 <= 0.5 and param.dtype in (torch.float32, torch.float64) and group["weight_decay"] == 0.0:
            assert precision < 1e-25  # halved at every step: the attack has reached the floor


@pytest.mark.parametrize("hess_approx", ["reparam", "squared_gradient"])
def test_largest_gradients_in_several_samples_are_averaged_without_overflow(hess_approx: str) -> None:
    bound = torch.finfo(torch.float32).max
    weight = torch.zeros(4, requires_grad=True)
    opt = IVON([weight], lr=0.1, ess=1000.0, betas=(0.9, 0.5), hess_approx=hess_approx, seed=0)  # type: ignore[arg-type]
    for _ in range(50):
        for sign in (1.0, 1.0, -1.0):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                (weight * torch.tensor([bound, sign * bound, 1e30, sign])).sum().backward()
        opt.step()
        assert_sound(opt, "three samples")
    assert opt.skipped_steps == 0


@pytest.mark.parametrize("path", PATHS)
def test_huge_but_finite_gradients_of_several_samples_may_be_clipped(path: str) -> None:
    """The squares of these gradients overflow float32, so a norm of them is infinite."""
    weight = torch.zeros(3, requires_grad=True)
    opt = IVON([weight], lr=0.1, ess=100.0, seed=0, **PATHS[path])
    for _ in range(2):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            (weight * 1e25).sum().backward()
    torch.nn.utils.clip_grad_value_([weight], 1e30)
    opt.step()
    assert_sound(opt, "after clip_grad_value_")


def test_nan_of_one_sample_that_the_user_removes_from_the_gradient_is_not_in_hess() -> None:
    weight = torch.zeros(3, requires_grad=True)
    opt = IVON([weight], lr=0.1, ess=100.0, seed=0)
    for factor in (math.nan, 1.0):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            (weight * factor).sum().backward()
    assert weight.grad is not None
    weight.grad.nan_to_num_()
    opt.step()
    assert_sound(opt, "after nan_to_num_")


@pytest.mark.parametrize("path", PATHS)
def test_weight_decay_that_falls_while_h_is_negative_keeps_the_precision_positive(path: str) -> None:
    weight = torch.zeros(3, requires_grad=True)
    opt = IVON([weight], lr=0.1, ess=100.0, weight_decay=0.1, betas=(0.9, 0.5), seed=0, **PATHS[path])
    with opt.sampled_params():
        pass
    opt.state[weight]["hess"].copy_(torch.tensor([-0.09, -0.05, 0.5]))  # sound at delta = 0.1
    for decay in (0.08, 0.01, 0.0):
        opt.param_groups[0]["weight_decay"] = decay
        with opt.sampled_params():
            assert weight.isfinite().all(), f"sample {weight} at weight_decay={decay}"
        push(opt, {weight: torch.ones(3)})
        assert_sound(opt, f"weight_decay={decay}")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_sample_of_a_low_precision_parameter_is_finite_at_the_largest_mean(dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    weight = torch.full((100,), largest, dtype=dtype, requires_grad=True)
    opt = IVON([weight], lr=0.1, ess=1e-4, seed=0)  # sigma = 100, more than an ulp of float16 there
    with opt.sampled_params():
        assert weight.isfinite().all()
    assert (weight == largest).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("hess_init", [0.05, 1.0])
def test_low_precision_noise_is_right_at_the_size_of_imagenet(dtype: torch.dtype, hess_init: float) -> None:
    """ess = 1.3M overflows float16 and its sigma of 9e-4 is small there: it must be computed in float32."""
    count, ess = 200_000, 1.3e6
    weight = torch.zeros(count, dtype=dtype, requires_grad=True)
    opt = IVON([weight], lr=0.1, ess=ess, hess_init=hess_init, seed=0)
    with opt.sampled_params():
        sample = weight.detach().double()
    sigma = (ess * (hess_init + 1e-4)) ** -0.5
    # 5 standard errors of a standard deviation, and a thousandth for the rounding of the sample
    assert sample.std().item() == pytest.approx(sigma, rel=5.0 / math.sqrt(2 * count) + 1e-3)
    assert abs(sample.mean().item()) <= 5.0 * sigma / math.sqrt(count)
    fourth = (sample / sigma).pow(4).mean().item()
    assert fourth == pytest.approx(3.0, abs=5.0 * math.sqrt(96.0 / count) + 0.01)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_hessian_is_that_of_float32(dtype: torch.dtype) -> None:
    """With equal gradients the state is bit for bit the one of a float32 parameter."""
    gradients = torch.randn(20, 50).to(dtype)
    states = []
    for kind in (dtype, torch.float32):
        weight = torch.zeros(50, dtype=kind, requires_grad=True)
        opt = IVON([weight], lr=0.1, ess=1.3e6, seed=0, foreach=False, fused=False)
        for gradient in gradients:
            push(opt, {weight: gradient.to(kind)})
        states.append(opt.state[weight])
    low, full = states
    assert torch.equal(low["hess"], full["hess"])
    assert torch.equal(low["momentum"], full["momentum"])
    assert (full["hess"] != 1.0).all()


def test_max_grad_norm_of_float16_gradients_is_computed_beyond_float16() -> None:
    weight = torch.zeros(100_000, dtype=torch.float16, requires_grad=True)
    opt = IVON([weight], lr=0.1, ess=100.0, betas=(0.0, 0.99), max_grad_norm=1.0, seed=0)
    push(opt, {weight: torch.full((100_000,), 300.0, dtype=torch.float16)})  # norm 94,868 > 65,504
    assert opt.state[weight]["momentum"].norm().item() == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("path", PATHS)
def test_one_minus_beta_is_taken_in_float64(path: str) -> None:
    """float32 rounds 1 - 1e-9 to 1: the Hessian would never move, and debiasing divide by zero."""
    weight = torch.zeros(3, requires_grad=True)
    betas = (1.0 - 1e-9, 1.0 - 1e-9)
    opt = IVON(
        [weight], lr=0.1, ess=100.0, betas=betas, weight_decay=0.0, hess_approx="squared_gradient", **PATHS[path]
    )
    push(opt, {weight: torch.tensor([1e5, 1e4, 1.0])})
    # x = 1e-9 (g^2 - 1): h = 1 + x + x^2/2, and m = -lr g / h
    x = torch.tensor([10.0, 0.1, 0.0], dtype=torch.float64)
    expected = 1.0 + x + x**2 / 2
    torch.testing.assert_close(opt.state[weight]["hess"].double(), expected, rtol=2e-7, atol=0.0)
    mean = -0.1 * torch.tensor([1e5, 1e4, 1.0], dtype=torch.float64) / expected
    torch.testing.assert_close(weight.detach().double(), mean, rtol=5e-7, atol=0.0)


def test_hyperparameters_keep_their_bits_in_groups_and_state_dict() -> None:
    numbers = {"lr": 0.1 + 2**-50, "ess": 1281167.0, "hess_init": 1e-3 + 2**-60, "weight_decay": 1e-4 + 2**-60}
    numbers |= {"clip_radius": 1e-3 + 2**-60, "betas": (0.9 + 2**-50, 1.0 - 2**-50)}
    weight = torch.zeros(2, dtype=torch.bfloat16, requires_grad=True)
    opt = IVON([weight], **numbers, rescale_lr=False)
    push(opt, {weight: torch.ones(2, dtype=torch.bfloat16)})
    copy = IVON([weight], lr=1.0, ess=1.0)
    copy.load_state_dict(opt.state_dict())
    for group in (opt.param_groups[0], copy.param_groups[0]):
        assert {name: group[name] for name in numbers} == numbers


def test_float64_parameters_see_float64_hyperparameters() -> None:
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    opt = IVON(
        [weight], lr=0.1, ess=1e12, hess_init=0.3, betas=(0.9, 0.7), weight_decay=0.0, hess_approx="squared_gradient"
    )
    push(opt, {weight: torch.full((1,), 0.1, dtype=torch.float64)})
    hess = 0.7 * 0.3 + (1 - 0.7) * 0.1**2 + 0.5 * (1 - 0.7) ** 2 * (0.3 - 0.1**2) ** 2 / 0.3
    assert opt.state[weight]["hess"].item() == pytest.approx(hess, rel=1e-15)
    assert weight.item() == pytest.approx(1.0 - 0.1 * 0.3 * 0.1 / hess, rel=1e-15)
