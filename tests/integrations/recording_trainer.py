"""A small BERT in Hugging Face's Trainer that records its batches and weights, and the plain loop beside it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

from varlearn import IVON
from varlearn.integrations.transformers import PosteriorTrainer

SETTINGS: dict[str, Any] = {
    "lr": 0.05,
    "ess": 1000.0,
    "hess_init": 0.1,
    "betas": (0.9, 0.95),
    "weight_decay": 0.01,
    "seed": 7,
}


class Recording(PosteriorTrainer, Trainer):
    """Keeps the batches of training, and the weights that each was seen with."""

    def training_step(self, model: nn.Module, inputs: dict[str, Tensor], num_items_in_batch: Any = None) -> Tensor:
        self.batches = [*getattr(self, "batches", []), {name: value.clone() for name, value in inputs.items()}]
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.seen = [*getattr(self, "seen", []), flat(model)]
        return loss


def flat(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten().clone() for value in model.parameters()])


def bert(labels: int = 3, dropout: float = 0.0, **options: Any) -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=32,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=24,
            max_position_embeddings=16,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            num_labels=labels,
            **options,
        )
    )


def examples(count: int = 16, label: Callable[[int], Any] = lambda index: index % 3) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 32, (count, 6), generator=generator)
    return [{"input_ids": tokens[index].tolist(), "labels": label(index)} for index in range(count)]


def trainer(folder: Path, model: nn.Module | None = None, *, samples: int = 0, **options: Any) -> Recording:
    names = ("compute_metrics", "callbacks", "preprocess_logits_for_metrics", "posterior")
    rest = {name: options.pop(name) for name in names if name in options}
    settings = SETTINGS | options.pop("settings", {})
    defaults: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 5,
        "max_steps": 4,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.01,
        "max_grad_norm": 0.0,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_strategy": "no",
    }
    return Recording(
        bert() if model is None else model,
        TrainingArguments(str(folder), **(defaults | options)),
        train_dataset=examples(),
        eval_dataset=examples(13),
        optimizer_cls_and_kwargs=(IVON, settings),
        posterior_samples=samples,
        **rest,
    )


def batches(data: list[dict[str, Any]], size: int = 5) -> list[dict[str, Tensor]]:
    """Without an attention mask, like the Trainer's batches of these examples."""
    return [
        {name: torch.tensor([row[name] for row in data[start : start + size]]) for name in data[0]}
        for start in range(0, len(data), size)
    ]


def optimizer_of(done: Recording) -> IVON:
    return done.optimizer.optimizer


def replay(
    done: Recording,
    *,
    accumulate: int = 1,
    clip: float | None = None,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    **settings: Any,
) -> tuple[nn.Module, IVON]:
    """The same batches in a plain loop with blocks."""
    model = bert()
    decayed = set(done.get_decay_parameter_names(model))
    groups = [
        {"params": [p for n, p in model.named_parameters() if (n in decayed) == decay], "weight_decay": 0.01 * decay}
        for decay in (True, False)
    ]
    opt = IVON(groups, **(SETTINGS | settings))
    for start in range(0, len(done.batches), accumulate):
        opt.zero_grad()
        with opt.sampled_params(train=True):
            for batch in done.batches[start : start + accumulate]:
                with autocast():
                    loss = model(**batch).loss / accumulate
                loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
    return model, opt


def assert_same(done: Recording, plain: tuple[nn.Module, IVON]) -> None:
    model, opt = plain
    torch.testing.assert_close(flat(done.model), flat(model), rtol=0, atol=2e-6)
    for ours, theirs in zip(opt.param_groups, optimizer_of(done).param_groups, strict=True):
        for a, b in zip(ours["params"], theirs["params"], strict=True):
            torch.testing.assert_close(opt.state[a]["hess"], optimizer_of(done).state[b]["hess"], rtol=1e-4, atol=1e-5)
