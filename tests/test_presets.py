"""Presets are keyword arguments of IVON, and say what the paper says."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from varlearn import IVON, presets

CALLS: list[Callable[[], presets.Preset]] = [
    lambda: presets.short_run(n=1_000, steps=1_200),
    lambda: presets.short_run(n=60_000, steps=10**6),
    lambda: presets.short_run(n=1, steps=1),
    lambda: presets.short_run(n=10_000, steps=600, like="adamw"),
    lambda: presets.resnet(n=50_000),
    presets.imagenet,
    lambda: presets.pretrain_gpt2("773M"),
    lambda: presets.finetune(n=2_500),
    lambda: presets.lora(n=2_500),
    lambda: presets.finetune(n=2_500, steps=100),
    lambda: presets.lora(n=2_500, steps=100),
    lambda: presets.lora_practice("winogrande_s"),
]


@pytest.mark.parametrize("call", CALLS)
def test_every_preset_makes_an_optimizer_that_steps(call: Callable[[], presets.Preset]) -> None:
    weight = nn.Parameter(torch.ones(3))
    opt = IVON([weight], **call())
    with opt.sampled_params(train=True):
        (weight**2).sum().backward()
    opt.step()
    assert bool(weight.isfinite().all())
    assert not torch.equal(weight, torch.ones(3))


def test_the_papers_numbers() -> None:
    cifar = {"lr": 0.2, "ess": 50_000.0, "hess_init": 0.5, "betas": (0.9, 1 - 1e-5), "weight_decay": 2e-4}
    assert presets.resnet(50_000) == cifar
    assert presets.imagenet()["ess"] == 1_281_167.0
    assert [presets.pretrain_gpt2(size)["lr"] for size in ("125M", "355M", "773M")] == [0.3, 0.2, 0.15]
    assert not presets.pretrain_gpt2()["rescale_lr"]  # clipping replaces rescaling


def test_auto_lets_h_move_in_short_runs_and_meets_the_paper_in_long_ones() -> None:
    assert presets.short_run(n=1_000, steps=1_000)["betas"][1] == pytest.approx(0.999)
    assert presets.short_run(n=1_000, steps=10**7)["betas"][1] == 1 - 1e-5
    assert presets.short_run(n=10, steps=10)["weight_decay"] == 1e-3
    assert presets.short_run(n=10**6, steps=10)["weight_decay"] == 2e-4


def test_auto_like_adamw_moves_a_weight_as_far_as_adamw_and_bounds_the_first_noise() -> None:
    for n in (100, 8_000, 120_000):
        settings = presets.short_run(n=n, steps=1_000, like="adamw")
        assert settings["lr"] * settings["clip_radius"] == pytest.approx(3e-3)
        assert settings["ess"] == max(n, 8_000)
        assert (settings["ess"] * settings["hess_init"]) ** -0.5 < 0.036


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "many"])
def test_bad_numbers_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="n=.* must be a positive integer; use the number of training examples"):
        presets.short_run(n=bad, steps=10)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="steps=.* must be a positive integer; use epochs"):
        presets.short_run(n=10, steps=bad)  # pyright: ignore[reportArgumentType]


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(ValueError, match="size='1B' must be one of"):
        presets.pretrain_gpt2("1B")  # pyright: ignore[reportArgumentType]


def test_auto_wants_to_know_an_optimizer_that_it_knows() -> None:
    with pytest.raises(ValueError, match="like='adam' must be 'sgd' or 'adamw'"):
        presets.short_run(n=10, steps=10, like="adam")  # type: ignore[arg-type]


def test_noise_lifts_h_by_as_much_as_auto_says() -> None:
    # a linear loss has no curvature: h settles at (1 - beta2) ess g^2 / 2
    slope, ess, beta2 = 0.5, 100.0, 0.99
    weight = nn.Parameter(torch.zeros(2_000))
    opt = IVON([weight], lr=1e-9, ess=ess, hess_init=0.2, betas=(0.9, beta2), weight_decay=1e-6)
    levels = []
    for step in range(1_500):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            (slope * weight).sum().backward()
        opt.step()
        if step >= 1_000:
            levels.append(opt.state[weight]["hess"].mean().item())
    assert sum(levels) / len(levels) == pytest.approx((1 - beta2) * ess * slope**2 / 2, rel=0.05)


def test_short_finetuning_moves_weights_of_small_gradients_and_keeps_the_noise() -> None:
    sigmas, moves = [], []
    for steps in (None, 100):
        settings = presets.finetune(n=1_000, steps=steps)
        weight = nn.Parameter(torch.zeros(50))
        opt = IVON([weight], **settings)
        for _ in range(10):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                (1e-5 * weight).sum().backward()
            opt.step()
        moves.append(-weight.detach().mean().item())
        sigmas.append((settings["ess"] * (settings["hess_init"] + settings["weight_decay"])) ** -0.5)
    assert sigmas[1] == pytest.approx(sigmas[0], rel=0.01)
    assert moves == pytest.approx([10 * 0.1 * 1e-5, 10 * 0.05 * 1e-3], rel=0.02)


def test_long_finetuning_is_the_papers() -> None:
    assert presets.finetune(n=1_000, steps=1_000) == presets.finetune(n=1_000)
    assert presets.lora(n=1_000, steps=1_000) == presets.lora(n=1_000)
    with pytest.raises(ValueError, match="steps=0 must be a positive integer"):
        presets.lora(n=1_000, steps=0)


def test_the_old_name_of_a_short_run_still_works_and_names_the_new_ones() -> None:
    with pytest.warns(DeprecationWarning, match=r"use varlearn.VAdamW.for_loader.*or presets.short_run"):
        assert presets.auto(n=1_000, steps=100) == presets.short_run(n=1_000, steps=100)


def test_published_settings_of_adapters() -> None:
    found = {task: presets.lora_practice(task) for task in ("winogrande_m", "arc_easy", "boolq", "translation")}
    assert [(one["ess"], one["hess_init"]) for one in found.values()] == [
        (1e8, 3e-4), (1e6, 1e-3), (1e7, 3e-4), (1e7, 3e-4)
    ]  # fmt: skip
    assert [one["weight_decay"] for one in found.values()] == [0.0, 0.0, 0.0, 1e-6]
    assert {(one["lr"], one["betas"], one["clip_radius"], one["rescale_lr"]) for one in found.values()} == {
        (0.03, (0.9, 1 - 1e-5), 1e-3, False)
    }
    with pytest.raises(ValueError, match="task='mmlu' has no published setting; choose one of winogrande_s"):
        presets.lora_practice("mmlu")
