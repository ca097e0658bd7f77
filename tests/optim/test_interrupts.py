"""Ctrl-C anywhere in entering, leaving and stepping leaves means in the weights, no open sample and no lock."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.interrupts import Injector
from varlearn import IVON

# Python prints an interrupt that falls into the end of a generator expression, and goes on.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ENGINES: dict[str, dict[str, Any]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
SETTINGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.99), "seed": 0}


class Trial:
    """Three parameters of unequal kinds, and an optimizer that has taken two steps."""

    def __init__(self, engine: str, memory: str, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        self.params = [
            nn.Parameter(torch.randn(3, 5, generator=generator).to(dtype)),
            nn.Parameter(torch.randn(4, 6, generator=generator).to(dtype).t()),
            nn.Parameter(torch.randn(7, generator=generator).to(dtype)),
        ]
        with torch.no_grad():
            for times, param in enumerate(self.params):  # so that PyTorch counts other versions of each
                for _ in range(times):
                    param.mul_(1.0)
        self.opt = IVON(self.params, **SETTINGS, memory=memory, **ENGINES[engine])
        for _ in range(2):
            with self.opt.sampled_params(train=True):
                self.closure()
            self.opt.step()

    def closure(self) -> None:
        self.opt.zero_grad()
        torch.stack([param.float().square().sum() for param in self.params]).sum().backward()

    def values(self) -> list[Tensor]:
        """Weights and state, tensor after tensor."""
        states = [self.opt.state[param] for param in self.params]
        found = [*self.params, *(state[name] for state in states for name in ("momentum", "hess"))]
        return [tensor.detach().clone() for tensor in found]


def evaluation_block(trial: Trial) -> None:
    with trial.opt.sampled_params():
        pass


def training_block(trial: Trial) -> None:
    with trial.opt.sampled_params(train=True):
        trial.closure()


def step(trial: Trial) -> None:
    trial.opt.step()


def step_with_closure(trial: Trial) -> None:
    trial.opt.step(trial.closure)


def modes(trial: Trial) -> None:
    try:
        trial.opt.train()
        trial.closure()
        trial.opt.step()
    finally:
        trial.opt.eval()


def staying(trial: Trial) -> None:
    try:
        trial.opt.train(stay=True)
        trial.closure()
        trial.opt.step()
    finally:
        try:
            trial.opt.eval()
        except KeyboardInterrupt:  # before it began: only the user can call it again
            trial.opt.eval()
            raise


ACTIONS: dict[str, Callable[[Trial], None]] = {
    "evaluation": evaluation_block,
    "training": training_block,
    "step": step,
    "closure": step_with_closure,
    "modes": modes,
    "staying": staying,
}


def go_on(trial: Trial, action: str) -> None:
    """Train on in the way that was interrupted."""
    if action in ("closure", "modes", "staying"):
        ACTIONS[action](trial)
    else:
        training_block(trial)
        step(trial)


def is_close(found: Tensor, expected: Tensor, memory: str) -> bool:
    """Bit for bit, or with memory="lean" up to the rounding of adding noise and subtracting it again."""
    if memory == "fast" or found.dtype == torch.bfloat16:
        return torch.equal(found, expected)
    return torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


def is_locked(opt: IVON) -> bool:
    """Whether another thread could not take a sample."""

    def enter() -> None:
        with opt.sampled_params():
            pass

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    thread.join(timeout=60.0)
    return thread.is_alive()


def sweep(engine: str, memory: str, dtype: torch.dtype, action: str, first: int, stride: int) -> list[str]:
    """What an interrupt has broken, over every `stride`-th place."""

    def begin() -> Trial:
        trial = Trial(engine, memory, dtype)
        if action == "step":
            training_block(trial)
        return trial

    whole = begin()
    before = whole.values()
    ACTIONS[action](whole)
    after = whole.values() if action in ("step", "closure", "modes", "staying") else before
    broken = []
    places = 0
    for count in itertools.count(first, stride):
        trial = begin()
        injector = Injector(count)
        injector.run(lambda trial=trial: ACTIONS[action](trial))
        if injector.where is None:
            break
        places += 1
        if trial.opt.is_sampled:
            broken.append(f"{injector.where}: a sample is left open")
        for old, new, found in zip(before, after, trial.values(), strict=True):
            if not (is_close(found, old, memory) or is_close(found, new, memory)):
                broken.append(f"{injector.where}: a tensor of shape {tuple(found.shape)} is neither old nor new")
        if is_locked(trial.opt):
            broken.append(f"{injector.where}: other threads wait forever")
        trial.opt.zero_grad()
        try:
            go_on(trial, action)
        except RuntimeError as error:
            broken.append(f"{injector.where}: the next step fails: {error}")
        assert all(bool(value.isfinite().all()) for value in trial.values())
    assert places * stride > 50
    return broken


COMBINATIONS = list(itertools.product(ENGINES, ("fast", "lean"), DTYPES, ACTIONS))


@pytest.mark.parametrize(("engine", "memory", "dtype", "action"), COMBINATIONS)
def test_an_interrupt_loses_nothing(engine: str, memory: str, dtype: str, action: str) -> None:
    """A sample of the places, another one for each combination."""
    offset = COMBINATIONS.index((engine, memory, dtype, action))
    broken = sweep(engine, memory, DTYPES[dtype], action, first=1 + offset % 37, stride=37)
    assert not broken, "\n".join(broken)


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "memory", "dtype", "action"), COMBINATIONS)
def test_an_interrupt_at_every_place_loses_nothing(engine: str, memory: str, dtype: str, action: str) -> None:
    broken = sweep(engine, memory, DTYPES[dtype], action, first=1, stride=1)
    assert not broken, "\n".join(broken)
