"""Variational AdamW on one flat vector, with a switch for each open question; for validation data only."""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch
from torch import Tensor, nn

from experiments.no_tuning.tasks import Parts, Task

DEFAULTS: dict[str, Any] = {
    "rate": 3e-3,
    "width": 2.0,
    "power": 1.0,
    "shift": 0,  # w_t = min(1, width / (matrices + shift)^power)
    "short": 0.0,  # > 0: in a run of fewer passes, all widths shrink in proportion
    "embeddings": True,  # noise of full width in embeddings; False: as in matrices
    "vectors": 1.0,  # factor of the width of biases and normalization parameters; 0 for no noise
    "cold": 100.0,  # ess starts at cold * n ...
    "anneal": 10.0,  # ... and reaches n after so many passes
    "grow": True,  # the prior width follows the present mean where that is larger
    "per": "weight",  # or "tensor": one level of B v for each
    "decay": 0.01,
    "beta2": 0.999,
    "relative": "",  # "tensor": the rate is a multiple of a tensor's initial rms; "model": of a mean over all matrices
    "anneal_share": 0.0,  # > 0: annealing takes so much of the run instead
    "ess": 1.0,  # final ess / n
}


class Rule:
    """1 / sigma^2 = ess B v + 1 / s_t^2, and AdamW's step for the mean."""

    has_posterior = True
    samples = 1

    def __init__(self, model: nn.Module, task: Task, parts: Parts, job: dict[str, Any]) -> None:
        self.options = o = DEFAULTS | job
        self.params = [p for p in model.parameters() if p.requires_grad]
        embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
        matrices = [p for p in self.params if _is_matrix(p) and id(p) not in embeddings]
        width = min(1.0, o["width"] / (len(matrices) + o["shift"]) ** o["power"])
        short = min(1.0, task.passes / o["short"]) if o["short"] else 1.0
        rms, widths, last = [], [], next(_rms(p) for p in self.params if _is_matrix(p))
        for p in self.params:  # a vector takes the scale of the matrix before it
            last = _rms(p) if _is_matrix(p) else last
            rms.append(last)
            wide = id(p) in embeddings and o["embeddings"]
            widths.append(short * (1.0 if wide else width if _is_matrix(p) else width * o["vectors"]))
        self.first, self.width = torch.tensor(rms) ** 2, torch.tensor(widths)
        self.sizes = torch.tensor([p.numel() for p in self.params])
        self.tensor_of = torch.repeat_interleave(torch.arange(len(self.sizes)), self.sizes)
        self.mean = torch.cat([p.detach().reshape(-1) for p in self.params])
        self.momentum, self.second = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        self.std: Tensor | None = None
        self.n, self.batch = task.terms(parts.train), task.batch * task.terms(parts.train) // len(parts.train.inputs)
        self.anneal = o["anneal_share"] * task.passes or o["anneal"]
        self.rates: Tensor | float = 1.0
        if o["relative"] == "tensor":  # an embedding takes the mean of the matrices
            sizes = torch.where(
                torch.tensor([id(p) in embeddings for p in self.params]), _typical(matrices), self.first.sqrt()
            )
            self.rates = sizes[self.tensor_of]
        elif o["relative"] == "model":
            self.rates = _typical(matrices)
        elif o["relative"] == "median":
            self.rates = statistics.median_high(_rms(p) for p in matrices if _rms(p) > 0)
        self.t, self.generator = 0, torch.Generator().manual_seed(job["seed"])

    def _put(self, flat: Tensor) -> None:
        start = 0
        for p in self.params:
            p.data.copy_(flat[start : start + p.numel()].view_as(p))
            start += p.numel()

    def perturb(self) -> None:
        if self.std is not None:
            self._put(self.mean + self.std * torch.randn(self.mean.shape, generator=self.generator))

    def show(self, scale: float, number: int) -> None:
        if scale == 0.0 or self.std is None:
            return self._put(self.mean)
        noise = torch.randn(self.mean.shape, generator=torch.Generator().manual_seed(1_000_000 + number))
        self._put(self.mean + scale * self.std * noise)

    def step(self, schedule: float) -> None:
        o, b1, b2 = self.options, 0.9, self.options["beta2"]
        grad = torch.cat([p.grad.reshape(-1) if p.grad is not None else torch.zeros(p.numel()) for p in self.params])
        self.t += 1
        self.momentum.mul_(b1).add_(grad, alpha=1 - b1)
        self.second.mul_(b2).addcmul_(grad, grad, value=1 - b2)
        vhat = self.second / (1 - b2**self.t)
        direction = self.momentum / (1 - b1**self.t) / (vhat.sqrt() + 1e-8)
        self.mean -= o["rate"] * schedule * self.rates * (direction + o["decay"] * self.mean)
        ess = o["ess"] * self.n * max(1.0, o["cold"] ** (1 - self.t * self.batch / self.n / self.anneal))
        width = self.first
        if o["grow"]:
            width = torch.maximum(width, self._means(self.mean**2))
        if o["per"] == "tensor":
            vhat = self._means(vhat)[self.tensor_of]
        prior = (self.width**2 * width)[self.tensor_of]
        self.std = (prior / (1 + prior * ess * self.batch * vhat)).sqrt()

    def _means(self, values: Tensor) -> Tensor:
        return torch.zeros(len(self.sizes)).index_add_(0, self.tensor_of, values) / self.sizes


def _is_matrix(p: Tensor) -> bool:
    """Gains of shape (1, C, 1, 1) are vectors."""
    return sum(size > 1 for size in p.shape) > 1


def _rms(p: Tensor) -> float:
    return float(p.detach().square().mean().sqrt())


def _typical(matrices: list[Tensor]) -> float:
    """Geometric mean of the matrices' root mean squares."""
    return math.exp(statistics.fmean(math.log(_rms(p)) for p in matrices if _rms(p) > 0))
