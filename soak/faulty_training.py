"""A short training run of a tiny network in which some gradients are NaN, infinite, huge or denormal."""

from __future__ import annotations

import math
from contextlib import nullcontext, suppress
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from varlearn.optim import IVON, VAdamW

OPTIMIZERS: dict[str, tuple[type[IVON | VAdamW], dict[str, Any]]] = {
    "ivon": (IVON, {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.99), "weight_decay": 1e-3, "seed": 5}),
    "ivon, squared gradient": (IVON, {"lr": 0.1, "ess": 100.0, "hess_approx": "squared_gradient", "seed": 5}),
    "vadamw": (VAdamW, {"lr": 0.02, "n": 100, "batch_size": 8, "betas": (0.9, 0.99), "seed": 5}),
}
ENGINES: dict[str, dict[str, Any]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "native": {"fused": True},
}
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
VALUES = ("nan", "inf", "-inf", "huge", "-huge", "denormal")
_DROPPED = ("nan", "inf", "-inf")  # of these the step is dropped
_EXAMPLES = 8


class Fault(NamedTuple):
    """One bad gradient: when, on which rank, in which entry of which parameter, and its value."""

    step: int
    sample: int
    micro: int
    rank: int
    param: int
    entry: int
    value: str


class Plan(NamedTuple):
    """All that decides a run."""

    optimizer: str
    engine: str
    dtype: str
    memory: str
    way: str
    samples: int
    micro: int
    hidden: int
    ranks: int
    noise: str
    steps: int
    faults: tuple[Fault, ...]

    @property
    def dropped(self) -> set[int]:
        """The steps that must not happen."""
        return {fault.step for fault in self.faults if fault.value in _DROPPED}

    def fault(self, step: int, sample: int, micro: int, rank: int) -> Fault | None:
        """The fault of one backward pass."""
        here = (step, sample, micro, rank)
        return next((fault for fault in self.faults if fault[:4] == here), None)


def random_plan(chance: Random, ranks: int) -> Plan:
    """A run with one to three faults."""
    way = chance.choice(("blocks", "closure", "modes"))
    samples = 1 if way == "modes" else chance.randint(1, 3)
    micro, steps = chance.randint(1, 3), chance.randint(4, 9)
    drawn = [
        Fault(
            chance.randrange(steps - 1), chance.randrange(samples), chance.randrange(micro), chance.randrange(ranks),
            chance.randrange(5), chance.randrange(1000), chance.choice(VALUES),
        )
        for _ in range(chance.randint(1, 3))
    ]  # fmt: skip
    return Plan(
        optimizer=chance.choice(list(OPTIMIZERS)),
        engine=chance.choice(list(ENGINES)),
        dtype=chance.choice(list(DTYPES)),
        memory=chance.choice(("fast", "lean")),
        way=way,
        samples=samples,
        micro=micro,
        hidden=chance.choice((1, 3, 8, 33)),
        ranks=ranks,
        noise=chance.choice(("independent", "shared")) if ranks > 1 else "independent",
        steps=steps,
        faults=tuple({fault[:4]: fault for fault in drawn}.values()),  # one for each backward pass
    )


class Net(nn.Module):
    """Two layers and a scale; computes the loss of a micro-batch, with a bad gradient if there is a fault."""

    def __init__(self, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.first, self.second = nn.Linear(4, hidden), nn.Linear(hidden, 2)
        self.scale = nn.Parameter(torch.ones(()))
        for param in self.parameters():
            nn.init.normal_(param, std=0.5, generator=generator)
        self.to(dtype)

    def forward(self, inputs: Tensor, fault: Fault | None) -> Tensor:
        loss = (self.second(torch.tanh(self.first(inputs))) * self.scale).square().mean()
        if fault is None:
            return loss
        if fault.value == "denormal":
            return loss * _denormal(loss.dtype)
        param = list(self.parameters())[fault.param]
        push = torch.zeros_like(param)
        push.view(-1)[fault.entry % param.numel()] = _number(fault.value, param.dtype)
        return loss + (param * push).sum()


def _number(value: str, dtype: torch.dtype) -> float:
    """Huge is finite on the average of three ranks, and its square overflows."""
    huge = {torch.float64: 1e200, torch.float16: 1e4}.get(dtype, 1e30)
    return {"huge": huge, "-huge": -huge}[value] if "huge" in value else float(value)


def _denormal(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).tiny / 4


class _ForgottenError(Exception):
    """Ends a training block whose gradients are not used."""


class Training:
    """A model with an optimizer that follows a plan.

    Args:
        plan: what to do.
        engine: in place of the plan's.
        rank: of this process.
    """

    def __init__(self, plan: Plan, engine: str | None = None, rank: int = 0) -> None:
        self.plan, self.rank = plan, rank
        self.model = Net(plan.hidden, DTYPES[plan.dtype])
        self._net = DistributedDataParallel(self.model) if plan.ranks > 1 else self.model
        cls, settings = OPTIMIZERS[plan.optimizer]
        how = ENGINES[engine or plan.engine] | {"memory": plan.memory, "noise": plan.noise}
        self.opt = cls(self.model.parameters(), **settings, **how, mc_samples=plan.samples)

    def step(self, number: int) -> None:
        """One step with its faults."""
        if self.plan.way == "closure":
            samples = iter(range(self.plan.samples))
            self.opt.step(lambda: self._backward(number, next(samples)))
            return
        if self.plan.way == "modes":
            self.opt.zero_grad()
            self.opt.train()
            self._backward(number, 0, clear=False)
            self.opt.step()
            self.opt.eval()
            return
        for sample in range(self.plan.samples):
            with self.opt.sampled_params(train=True):
                self._backward(number, sample)
        self.opt.step()

    def skip(self, number: int) -> None:
        """Draw the samples of a step, take gradients without faults and forget them: what a dropped step must come to.

        The gradients make DDP arrange its buckets as in the other run; the order of a sum of three ranks depends on it.
        """
        for sample in range(self.plan.samples):
            with suppress(_ForgottenError), self.opt.sampled_params(train=True):
                self._backward(number, sample, faults=False)
                raise _ForgottenError
            for group in self.opt.param_groups:
                group["draws"] += 1

    def evaluate(self) -> bool:
        """Whether the loss at a sample of the posterior is finite."""
        with torch.no_grad(), self.opt.sampled_params():
            return math.isfinite(float(self.model(self._inputs(0, 0, 0), None)))

    def values(self) -> list[Tensor]:
        """Weights and state."""
        params = list(self.model.parameters())
        states = [self.opt.state[param] for param in params]
        kept = [state[name] for state in states for name in sorted(state) if isinstance(state[name], Tensor)]
        counts = torch.tensor([int(state["step"]) for state in states])
        return [tensor.detach().clone() for tensor in (*params, *kept, counts)]

    def _backward(self, step: int, sample: int, clear: bool = True, faults: bool = True) -> None:
        if clear:
            self.opt.zero_grad()
        for micro in range(self.plan.micro):
            fault = self.plan.fault(step, sample, micro, self.rank) if faults else None
            last = micro == self.plan.micro - 1
            waits = (
                self._net.no_sync() if isinstance(self._net, DistributedDataParallel) and not last else nullcontext()
            )
            with waits:
                (self._net(self._inputs(step, sample, micro), fault) / self.plan.micro).backward()

    def _inputs(self, step: int, sample: int, micro: int) -> Tensor:
        generator = torch.Generator().manual_seed(((step * 10 + sample) * 10 + micro) * 10 + self.rank)
        return torch.randn(_EXAMPLES, 4, generator=generator).to(DTYPES[self.plan.dtype])
