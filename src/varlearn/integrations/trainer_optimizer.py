"""Variational AdamW with the settings that a Hugging Face Trainer has anyway."""

from __future__ import annotations

import math
from collections.abc import Sized
from typing import TYPE_CHECKING, Any

from torch import nn

from varlearn.optim import VAdamW

if TYPE_CHECKING:
    from transformers import TrainingArguments


def trainer_optimizer(
    model: nn.Module,
    args: TrainingArguments,
    train_dataset: Sized,
    *,
    terms: float = 1.0,
    pretrained: bool = True,
    **settings: Any,
) -> VAdamW:
    """VAdamW with AdamW's settings of `TrainingArguments`.

    Use it as `Trainer(model, args, ..., optimizers=(trainer_optimizer(model, args, data), None))`. The Trainer adds
    its own learning-rate schedule, which falls to 0 unless you choose a constant one.

    Args:
        model: as it is given to the Trainer.
        args: learning rate, betas, eps, weight decay (of matrices), batch size, accumulation and length of the run.
        train_dataset: its length is n.
        terms: of the loss per example: 1, or for a language model the mean number of tokens of an example.
        pretrained: whether the weights come from another run. If not, the learning rate is `suggested_lr`.
        settings: of `VAdamW`; they replace those of `args`.

    >>> from types import SimpleNamespace
    >>> args = SimpleNamespace(train_batch_size=8, world_size=1, gradient_accumulation_steps=2, max_steps=-1)
    >>> vars(args).update(num_train_epochs=3, learning_rate=5e-5, weight_decay=0.0, seed=0)
    >>> vars(args).update(adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8)
    >>> group = trainer_optimizer(nn.Linear(2, 2), args, range(100)).param_groups[0]
    >>> group["lr"], group["n"], group["batch_size"], group["steps"]
    (5e-05, 100.0, 16.0, 21)
    """
    examples = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    known = {
        "n": terms * len(train_dataset),
        "batch_size": terms * examples,
        "steps": _steps(args, len(train_dataset)),
        "betas": (args.adam_beta1, args.adam_beta2),
        "eps": args.adam_epsilon,
        "weight_decay": args.weight_decay,
        "seed": args.seed,
    }
    lr = settings.pop("lr", args.learning_rate if pretrained else None)
    return VAdamW.for_model(model, lr, pretrained=pretrained, matrices_only=True, **known | settings)


def _steps(args: TrainingArguments, examples: int) -> int:
    """Optimizer steps of the run, as the Trainer counts them: an epoch ends with a step."""
    if args.max_steps > 0:
        return args.max_steps
    batches = math.ceil(examples / (args.train_batch_size * args.world_size))
    return math.ceil(args.num_train_epochs * math.ceil(batches / args.gradient_accumulation_steps))
