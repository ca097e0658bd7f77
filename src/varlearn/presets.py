"""Hyperparameters as keyword arguments of `IVON`, with the reason for each: Appendix A and C of the paper, and our own.

    opt = IVON(model.parameters(), **presets.resnet(n=50_000))

A preset is a plain dict; replace what you like: `presets.resnet(n) | {"lr": 0.1}`. For a run without tuning,
`VAdamW.for_loader` is the better choice: see docs/tuning.md.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

Preset = dict[str, Any]

# of the published experiments with adapters: lambda, h0, delta
_LORA_PRACTICE = {
    "winogrande_s": (1e7, 3e-4, 0.0),
    "winogrande_m": (1e8, 3e-4, 0.0),
    "arc_challenge": (1e6, 1e-3, 0.0),
    "arc_easy": (1e6, 1e-3, 0.0),
    "openbookqa": (1e6, 1e-3, 0.0),
    "boolq": (1e7, 3e-4, 0.0),
    "translation": (1e7, 3e-4, 1e-6),
}
_GPT2_LR = {"125M": 0.3, "355M": 0.2, "773M": 0.15}


def auto(n: int, steps: int, like: Literal["sgd", "adamw"] = "sgd") -> Preset:
    """Deprecated name of `short_run`, which has the same settings.

    `VAdamW.for_loader` replaced it as the choice without tuning: on ten tasks that it was not made for, this preset
    was better than tuned SGD and AdamW on three and worse on five (`experiments/no_tuning`).
    """
    warnings.warn(
        "presets.auto is deprecated and will be removed in version 0.3; use varlearn.VAdamW.for_loader(model, loader, "
        "epochs=...), which needs no settings, or presets.short_run(n, steps) for IVON with the same settings",
        DeprecationWarning,
        stacklevel=2,
    )
    return short_run(n, steps, like)


def short_run(n: int, steps: int, like: Literal["sgd", "adamw"] = "sgd") -> Preset:
    """IVON for runs of 10^3 to 10^4 steps from scratch. Use a cosine schedule, and a warm-up if unsure.

    Try `VAdamW` first: it needs less tuning in such runs. The paper's settings suit 10^5 steps and more. In a short run
    with beta2 = 1 - 1e-5, h stays at h0, sigma stays the first guess, and averaging over samples makes predictions
    worse than the mean. Hence:

    - beta2 1 - 1/steps, at most the paper's 1 - 1e-5: h forgets 63% of h0 by the end, whatever the length. A three
      times larger 1 - beta2 learned more about the curvature on digits, but diverged at this learning rate.
    - ess 10 n: ten times colder than the evidence lower bound. With lambda = n the first noise is more than a short run
      can work off.
    - hess_init 0.1: together with ess, a first sigma of 1/sqrt(n).
    - weight_decay 1/n, between 2e-4 and 1e-3: a prior of precision 10 for small data sets, the paper's value for large.

    For convolutional networks and others that SGD trains well (`like="sgd"`):

    - lr 0.5: the momentum is an average, so with rescaling the first steps are those of SGD's 0.05 with momentum 0.9,
      and grow as h falls. With 1 the NLL on MNIST is a quarter worse (`experiments/presets_auto`), with 2 digits
      diverged. Networks with normalization layers take 1 (`experiments/table1_images`).

    For recurrent networks and others where AdamW is the usual choice (`like="adamw"`; for a GPT from scratch
    `pretrain_gpt2` did better, also in a short run):

    - lr 3, not rescaled, with clip_radius 1e-3: a weight moves by at most 3e-3 in a step, as with AdamW at that rate,
      however small the gradients of such a network are. Where AdamW wants another rate, use 1,000 times that.
    - ess n instead of 10 n, the evidence lower bound as it is: an embedding learns a small set by heart, and the noise
      is against that (`experiments/table13_gru`). At least 8,000, which is a first sigma of at most 0.035.

    How fast h may move has a limit. hhat has the variance g^2 lambda (h + delta), which the second-order term of the
    update turns into growth: h settles (1 - beta2) lambda g^2 / 2 above the curvature. Where the gradient of a batch of
    B is mostly noise, g^2 is near h / B, and the excess is h / k if h averages over k lambda / (2 B) steps. These
    settings have k = epochs / 5, with ess = n ten times that. To make h faster, lower ess in proportion.

    Args:
        n: number of training examples; of tokens for a language model.
        steps: number of calls of `step()` in the whole run.
        like: the optimizer that usually trains such a network.

    >>> settings = short_run(n=1_000, steps=1_200)
    >>> settings["ess"], settings["weight_decay"]
    (10000.0, 0.001)
    >>> short_run(n=20_000, steps=1_200, like="adamw")["ess"]
    20000.0
    """
    _check_positive("n", n)
    _check_positive("steps", steps)
    if like not in ("sgd", "adamw"):
        raise ValueError(f"like={like!r} must be 'sgd' or 'adamw'; name the optimizer that usually trains your network")
    settings: Preset = {
        "lr": 0.5,
        "ess": 10.0 * n,
        "hess_init": 0.1,
        "betas": (0.9, 1.0 - min(0.1, max(1e-5, 1.0 / steps))),
        "weight_decay": min(1e-3, max(2e-4, 1.0 / n)),
    }
    if like == "adamw":
        settings |= {"lr": 3.0, "ess": max(8_000.0, float(n)), "clip_radius": 1e-3, "rescale_lr": False}
    return settings


def resnet(n: int) -> Preset:
    """The paper's setting for CIFAR and TinyImageNet: 200 epochs of batches of 50, that is 10^5 steps and more.

    - lr 0.2: twice SGD's 0.1; warm up over 5 epochs, then cosine to 0.
    - ess n: the standard evidence lower bound.
    - hess_init 0.5: best in the paper's ablation, where 0.1 to 5 are within half a point of accuracy.
    - beta2 1 - 1e-5: h averages over 10^5 steps. In a run of a few thousand it would never move: use `short_run`.
    - weight_decay 2e-4: the same as for SGD.

    Args:
        n: number of training examples.

    >>> resnet(50_000)["ess"]
    50000.0
    """
    _check_positive("n", n)
    return {"lr": 0.2, "ess": float(n), "hess_init": 0.5, "betas": (0.9, 1 - 1e-5), "weight_decay": 2e-4}


def imagenet() -> Preset:
    """The paper's ResNet-50 on ImageNet: batches of 1,024 over 8 devices, 200 epochs.

    - lr 2.5: momentum is an average, so this is a step of SGD's 0.25; SGD used 0.5.
    - hess_init 0.05: more noise at first than on CIFAR; with 1.28 million examples there is room for it.
    - beta2 1 - 5e-6: 250,000 steps to average over.

    >>> imagenet()["lr"]
    2.5
    """
    return {"lr": 2.5, "ess": 1_281_167.0, "hess_init": 0.05, "betas": (0.9, 1 - 5e-6), "weight_decay": 5e-5}


def pretrain_gpt2(size: Literal["125M", "355M", "773M"] = "125M") -> Preset:
    """The paper's GPT-2 on OpenWebText: 100,000 steps of 480 sequences, 2,000 of them warm-up, then cosine to 0.

    - lr 0.3, 0.2 or 0.15 by size, not rescaled, because the step is bounded by the clip radius instead.
    - clip_radius 1e-3: stabilizes transformers; a step moves a weight by at most lr * 1e-3.
    - ess 1e10, of the published experiments; the paper's text gives none. It is not the number of tokens: a run
      sees 4.92e10 (100,000 steps of 480 sequences of 1,024), in several epochs.
    - hess_init 1e-3: the curvature per weight is small in a large model.
    - weight_decay 1e-6: on matrices; give other parameters a group with 0.

    Args:
        size: number of parameters, as the paper names the models.

    >>> pretrain_gpt2("355M")["lr"]
    0.2
    """
    if size not in _GPT2_LR:
        raise ValueError(f"size={size!r} must be one of {sorted(_GPT2_LR)}; take the nearest, and tune lr")
    return {
        "lr": _GPT2_LR[size],
        "ess": 1e10,
        "hess_init": 1e-3,
        "betas": (0.9, 1 - 1e-5),
        "weight_decay": 1e-6,
        "clip_radius": 1e-3,
        "rescale_lr": False,
    }


def finetune(n: int, steps: int | None = None) -> Preset:
    """Finetuning a pretrained transformer, as the paper does on GLUE: 500 steps of warm-up, cosine to 0, batches of 32.

    - lr 0.1 (0.2 works too), not rescaled, with clip_radius 1e-3: a weight moves by at most 1e-4 in a step.
    - ess at least 10^6: with lambda = n a small task would start with noise that destroys what was pretrained. The
      paper says "larger than n" without a number; this one is ours.
    - hess_init 1, weight_decay 1e-5. With `prior_mean="init"` a larger weight decay is possible.

    With h = 1 a step is 0.1 times the gradient, which is small in a pretrained network: a hundred steps go nowhere. For
    runs of less than 1,000 steps, if `steps` says so:

    - hess_init 1e-3 and ess 1e9, the same sigma of 1e-3: now the clip radius decides, and every weight with a gradient
      moves by the same amount.
    - lr 0.05: that amount is 5e-5. AdamW's usual step is a fraction of its learning rate, so this is like 2e-4 there;
      0.1 did as well, 0.2 is too much.
    - beta2 as above: h does not move. With 1 - 1/steps it does, and one seed of three came out far worse.

    Args:
        n: number of training examples.
        steps: number of calls of `step()` in the whole run; None for the paper's settings.

    >>> finetune(2_500)["ess"]
    1000000.0
    >>> finetune(2_500, steps=300)["hess_init"], finetune(2_500, steps=3_000)["hess_init"]
    (0.001, 1.0)
    """
    _check_positive("n", n)
    if _is_short(steps):
        return finetune(n) | {"lr": 0.05, "ess": max(1e9, float(n)), "hess_init": 1e-3}
    return {
        "lr": 0.1,
        "ess": max(1e6, float(n)),
        "hess_init": 1.0,
        "betas": (0.9, 1 - 1e-5),
        "weight_decay": 1e-5,
        "clip_radius": 1e-3,
        "rescale_lr": False,
    }


def lora(n: int, steps: int | None = None) -> Preset:
    """Low-rank adapters of a frozen transformer, in the manner of the authors' later practice.

    - lr 0.03 with clip_radius 1e-3; hess_init 1e-3: adapters have few weights with large curvature.
    - ess at least 10^7: the adapters start at zero effect, and noise on both factors multiplies.
    - lr 0.3 instead for less than 1,000 steps: adapters start at zero and have a way to go; a weight moves by up to
      3e-4 in a step, as with AdamW at 1e-3. With 1 a small Llama stayed at chance (`experiments/lora`), and an encoder
      was worse than with 0.5 (`experiments/finetune`).

    Args:
        n: number of training examples.
        steps: number of calls of `step()` in the whole run; None for a long one.

    >>> lora(10_000)["hess_init"]
    0.001
    >>> lora(10_000, steps=100)["lr"]
    0.3
    """
    return finetune(n) | {"lr": 0.3 if _is_short(steps) else 0.03, "ess": max(1e7, float(n)), "hess_init": 1e-3}


def lora_practice(task: str) -> Preset:
    """The published settings of IVON for adapters of large language models, by task; nothing is tuned here.

    Question answering with Llama-2-7B: adapters of rank 8 and alpha 16 with dropout 0.1, 10,000 steps of batches of 4,
    linear decay to 0, predictions at the mean and with 10 samples; AdamW had a learning rate of 5e-5. Translation with
    Gemma-2B: 512 steps of warm-up, 8 micro-batches per step, gradients clipped to norm 1.

    - lr 0.03, not rescaled, with clip_radius 1e-3: a weight moves by at most 3e-5 in a step.
    - ess and hess_init by task: a first sigma of 1/sqrt(ess hess_init), 3e-3 to 3e-2.
    - weight_decay 0 (1e-6 for translation), beta2 1 - 1e-5.

    A run of a few hundred steps needs larger steps: see `lora`.

    Args:
        task: "winogrande_s", "winogrande_m", "arc_challenge", "arc_easy", "openbookqa", "boolq" or "translation".

    >>> settings = lora_practice("arc_challenge")
    >>> settings["ess"], settings["hess_init"], settings["lr"]
    (1000000.0, 0.001, 0.03)
    """
    if task not in _LORA_PRACTICE:
        raise ValueError(
            f"task={task!r} has no published setting; choose one of {', '.join(_LORA_PRACTICE)}, or lora()"
        )
    ess, hess_init, weight_decay = _LORA_PRACTICE[task]
    return {
        "lr": 0.03,
        "ess": ess,
        "hess_init": hess_init,
        "betas": (0.9, 1 - 1e-5),
        "weight_decay": weight_decay,
        "clip_radius": 1e-3,
        "rescale_lr": False,
    }


def _is_short(steps: int | None) -> bool:
    if steps is None:
        return False
    _check_positive("steps", steps)
    return steps < 1_000


def _check_positive(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(f"{name}={value!r} must be a positive integer; {_CURES[name]}")


_CURES = {"n": "use the number of training examples", "steps": "use epochs * batches per epoch"}
