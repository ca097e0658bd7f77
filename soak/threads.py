"""Threads that evaluate and save while another one trains.

Each case trains a small network twice with the same seed: alone, and while two other threads evaluate samples of the
posterior and save the state, as fast as they can. The promise: the second training leaves the same bytes as the first;
a thread that evaluates sees one sample from the beginning to the end of its block; every saved state is the one after
some step. With memory="lean" every sample changes the mean by rounding; there the two trainings must agree to 1e-3.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from soak.isolated import isolated
from soak.part import Outcome, Part, chance
from varlearn import IVON, VAdamW
from varlearn.optim.engine.native import native_engine

STEPS = 25
WAYS = ("block", "two blocks", "closure", "mode", "staying mode")
ENGINES: dict[str, dict[str, bool]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "native": {"fused": True},
}


def network(random: Random) -> nn.Sequential:
    """A small network; one in four is large enough for several threads of the kernels."""
    torch.manual_seed(random.randrange(1000))
    hidden = random.choice((3, 8, 40, 400))
    return nn.Sequential(nn.Linear(7, hidden), nn.Tanh(), nn.Linear(hidden, 50), nn.Tanh(), nn.Linear(50, 2))


def optimizer(kind: str, engine: str, memory: str, model: nn.Module) -> IVON | VAdamW:
    """An optimizer with ordinary settings."""
    options: dict[str, Any] = {"seed": 5, "memory": memory, **ENGINES[engine]}
    if kind == "ivon":
        return IVON(model.parameters(), lr=0.1, ess=1000.0, hess_init=1.0, **options)
    return VAdamW(model.parameters(), lr=0.01, n=1000.0, batch_size=10.0, ess=1000.0, **options)


def train_step(model: nn.Module, opt: IVON | VAdamW, way: str, number: int) -> None:
    """One step on data that the number of the step decides."""
    inputs = torch.randn(10, 7, generator=torch.Generator().manual_seed(number))

    def loss() -> Tensor:
        opt.zero_grad()
        value = (model(inputs) - inputs[:, :2]).square().mean()
        value.backward()
        return value

    if way == "closure":
        opt.step(loss)
        return
    if way in ("block", "two blocks"):
        for _ in range(1 if way == "block" else 2):
            with opt.sampled_params(train=True):
                loss()
    else:
        opt.train(stay=way == "staying mode")
        loss()
    opt.step()
    if way == "staying mode" and number % 5 == 4:
        opt.eval()  # else no other thread would ever come in


def digest(model: nn.Module | None, opt: IVON | VAdamW) -> str:
    """Of the weights, if given, and of the state's tensors."""
    found = hashlib.sha256()
    tensors = [] if model is None else list(model.parameters())
    for state in opt.state.values():
        tensors += [value for _, value in sorted(state.items()) if isinstance(value, Tensor)]
    for tensor in tensors:
        found.update(tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def weights(model: nn.Module) -> list[Tensor]:
    """A copy."""
    return [param.detach().clone() for param in model.parameters()]


class Others:
    """The threads beside the training one, and what they found wrong."""

    def __init__(self, model: nn.Module, opt: IVON | VAdamW) -> None:
        self.faults: list[str] = []
        self.saved: list[str] = []
        self.evaluated = 0
        self._model, self._opt = model, opt
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._repeated, args=(work,)) for work in (self._evaluate, self._save)]

    def __enter__(self) -> Others:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _repeated(self, work: Callable[[], None]) -> None:
        try:
            while not self._over.is_set():
                work()
        except BaseException as error:
            self.faults.append(f"{type(error).__name__}: {error}")

    def _evaluate(self) -> None:
        with torch.no_grad(), self._opt.sampled_params():
            before = weights(self._model)
            outputs = self._model(torch.ones(3, 7))
            if not all(map(torch.equal, before, weights(self._model))):
                self.faults.append("the weights changed inside a block of evaluation")
            if not bool(outputs.isfinite().all()):
                self.faults.append("an output is not finite")
        self.evaluated += 1

    def _save(self) -> None:
        with self._opt.sampled_params():  # until its end nobody steps
            self._opt.state_dict()
            self.saved.append(digest(None, self._opt))


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """Optimizer, engine, memory mode and way of training are random."""
    engines = [name for name in ENGINES if name != "native" or native_engine.available()]
    for number in numbers:
        random = chance(seed, number)
        kind, memory = random.choice(("ivon", "vadamw")), random.choice(("fast", "lean"))
        engine, way = random.choice(engines), random.choice(WAYS)
        torch.set_num_threads(random.choice((1, 2)))
        alone, beside = (chance(seed + 1, number) for _ in range(2))
        fault, evaluated = _tried(kind, engine, memory, way, alone, beside)
        about = f"{kind}, {engine}, {memory}, {way}"
        yield Outcome(f"{kind}, {engine}", not fault, f"number {number}, {about}: {fault}" if fault else "", evaluated)


def _tried(kind: str, engine: str, memory: str, way: str, *randoms: Random) -> tuple[str, dict[str, float]]:
    ends: list[str] = []
    means: list[list[Tensor]] = []
    known: set[str] = set()
    for is_alone, random in zip((True, False), randoms, strict=True):
        model = network(random)
        opt = optimizer(kind, engine, memory, model)
        with opt.sampled_params():  # the state is made
            pass
        others = Others(model, opt)
        known.add(digest(None, opt))
        if is_alone:
            for number in range(STEPS):
                train_step(model, opt, way, number)
                known.add(digest(None, opt))
            opt.eval()
        else:
            with others:
                for number in range(STEPS):
                    train_step(model, opt, way, number)
                opt.eval()
        ends.append(digest(model, opt))
        means.append(weights(model))
    fault = others.faults[0] if others.faults else ""
    if memory == "lean":
        if not fault and not all(torch.allclose(*pair, rtol=1e-3, atol=1e-3) for pair in zip(*means, strict=True)):
            fault = "training beside other threads gave other weights"
    elif not fault and ends[0] != ends[1]:
        fault = "training beside other threads gave other bytes"
    elif not fault and not set(others.saved) <= known:
        fault = "a saved state is that of no step"
    return fault, {"evaluations beside a training": float(others.evaluated)}


PART = Part(
    "threads",
    "Threads that evaluate and save do not change a training, see whole samples, and save the state of a step",
    "trainings",
    short=100,
    full=1_000,
    cases=isolated(cases, longest=600.0),  # on a busy machine OpenMP's threads wait for each other
)
