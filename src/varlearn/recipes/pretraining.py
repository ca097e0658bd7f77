"""GPT-2 pretraining: three sizes with AdamW and IVON."""

from __future__ import annotations

from typing import Literal

from varlearn import presets
from varlearn.recipes.scales import Scale
from varlearn.train.config import Data, Evaluate, Model, Optim, Run, Train

Size = Literal["125m", "355m", "773m"]
DEVICES = 8
# Sequences per micro-batch and micro-batches per step: with 8 devices 480 sequences a step, and 24, 48 and 120 samples.
MICRO: dict[Size, tuple[int, int]] = {"125m": (20, 3), "355m": (10, 6), "773m": (4, 15)}
SMALL_STEPS = 1_000
SMALL_TEST = 16_384  # tokens
EVALUATED = 1_048_576  # tokens of the held-out documents, 1,024 sequences: what a run is scored on


def language(size: Size, optim: Literal["ivon", "adamw"], scale: Scale = "small", seed: int = 0) -> Run:
    """GPT-2 pretraining as in the paper's Figure 1: validation perplexity of IVON and AdamW at equal steps.

    At the paper's scale: OpenWebText in GPT-2's tokens (`varlearn prepare openwebtext`), 100,000 steps of 480
    sequences of 1,024 tokens on 8 devices, 2,000 of them warm-up, cosine to 0, gradient norm clipped to 1, bf16. IVON:
    alpha 0.3, 0.2 or 0.15 by size, h0 1e-3, beta2 1 - 1e-5, delta 1e-6 on matrices, xi 1e-3, lambda 1e10, a fresh
    sample per micro-batch. AdamW: alpha 6e-4, beta2 0.95, decay 0.1 on matrices. Scored on the first 1,048,576 tokens
    that were held out. No process reads the corpus whole.

    At the small scale every size is stood in for by a network of 3M parameters on the bytes of the Brown corpus,
    1,000 steps of 8 sequences of 128 bytes: some seven minutes on one core. IVON keeps the paper's settings, which did
    better on a smaller network than a faster Hessian or a larger step; AdamW takes 1e-3.

    Args:
        size: "125m", "355m" or "773m" parameters.
        optim: "ivon" or "adamw".
        scale: "paper" or "small".
        seed: of initialization, order of the data and noise.

    >>> run = language("355m", "ivon", scale="paper")
    >>> run.optim.lr, run.data.batch_size * run.train.accumulate * DEVICES
    (0.2, 480)
    >>> language("355m", "ivon").model.name
    'gpt2_3m'
    """
    if size not in MICRO:
        raise ValueError(f"size={size!r} is not one of the paper's; choose one of {', '.join(MICRO)}")
    recipe = f"gpt2-{size}-{optim}"
    if scale == "small":
        return _small(recipe, optim, seed)
    batch_size, accumulate = MICRO[size]
    return Run(
        recipe=recipe,
        scale=scale,
        seed=seed,
        model=Model(name=f"gpt2_{size}", compile=True),
        data=Data(
            name="openwebtext", batch_size=batch_size, eval_batch_size=8, augment=False, context=1024, tokens="gpt2"
        ),
        optim=_ivon(size) if optim == "ivon" else _adamw(6e-4),
        train=Train(
            steps=100_000,
            warmup=2_000,
            accumulate=accumulate,
            max_grad_norm=1.0,
            precision="bf16",
            eval_every=1_000,
            checkpoint_every=1_000,
        ),
        evaluate=Evaluate(samples=16, subset=EVALUATED),
    )


def _small(recipe: str, optim: str, seed: int) -> Run:
    return Run(
        recipe=recipe,
        scale="small",
        seed=seed,
        model=Model(name="gpt2_3m"),
        data=Data(name="brown", batch_size=8, eval_batch_size=32, augment=False, context=128, tokens="bytes"),
        optim=_ivon("125m") if optim == "ivon" else _adamw(1e-3),
        train=Train(steps=SMALL_STEPS, warmup=SMALL_STEPS // 20, max_grad_norm=1.0, eval_every=50, log_every=20),
        evaluate=Evaluate(samples=8, subset=SMALL_TEST),
    )


def _ivon(size: Size) -> Optim:
    names: dict[str, Literal["125M", "355M", "773M"]] = {"125m": "125M", "355m": "355M", "773m": "773M"}
    settings = presets.pretrain_gpt2(names[size])
    beta1, beta2 = settings.pop("betas")
    return Optim(name="ivon", matrices_only=True, beta1=beta1, beta2=beta2, **settings)


def _adamw(lr: float) -> Optim:
    return Optim(name="adamw", lr=lr, weight_decay=0.1, matrices_only=True, beta2=0.95)
