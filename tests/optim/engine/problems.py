"""What the tests of the engines share: parameters in every memory order, and problems that run on any engine."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.torch_version import TorchVersion

from varlearn import IVON
from varlearn.core.dtypes import state_dtype
from varlearn.core.noise import derive_key
from varlearn.core.rule import Rule
from varlearn.core.update import RULE, Hyper
from varlearn.optim.engine import choice
from varlearn.optim.engine.native import compilation
from varlearn.optim.engine.plan import Member, Noise, Plan, StepSettings

# A block of the kernel is 32, 64 or 128 elements, a chunk 4096, and a second thread is used from 16384 on.
SIZES = [0, 1, 2, 3, 127, 128, 129, 255, 4096, 4097, 20_001]
WISHES: dict[str, dict[str, bool | None]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "native": {"foreach": None, "fused": True},
    "triton": {"foreach": None, "fused": True},
}


def has_compiler() -> bool:
    try:
        return bool(compilation.find_compiler())
    except compilation.BuildError:
        return False


# Where there is a compiler, the engine must be there: a build that fails its own check is no reason to skip.
needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C compiler")


def has_triton() -> bool:
    """Older interpreters fail with NumPy 2.4, and older compilers are called in another way."""
    is_installed = importlib.util.find_spec("triton") is not None
    return is_installed and TorchVersion(metadata.version("triton")) >= "3.9"


# Its kernels run in Triton's interpreter, which tests/conftest.py turns on.
needs_triton = pytest.mark.skipif(
    not has_triton(), reason="Triton 3.9 is not installed; it has packages for Linux only"
)
FUSED_ENGINES = [pytest.param("native", marks=needs_compiler), pytest.param("triton", marks=needs_triton)]
FAST_ENGINES = ["foreach", FUSED_ENGINES[0]]


def copied(tensor: Tensor) -> Tensor:
    """A copy in the same memory order, as likely misaligned as the original."""
    offset = tensor.storage_offset() % 8
    room = torch.empty(tensor.numel() + offset, dtype=tensor.dtype)
    return room.as_strided(tensor.shape, tensor.stride(), offset).copy_(tensor)


def layouts(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Tensors of every size and memory order that all engines take."""
    tensors = {f"{size} elements": torch.randn(size) for size in SIZES}
    tensors["a number"] = torch.randn(())
    tensors["channels last"] = torch.randn(8, 3, 5, 7).to(memory_format=torch.channels_last)
    tensors["transposed"] = torch.randn(33, 65).t()
    tensors["misaligned"] = torch.randn(4200)[1:]
    return {name: copied(tensor.to(dtype)) for name, tensor in tensors.items()}


def few_layouts(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Few and small ones for the interpreter: nothing, a number, more than a block, misaligned, another order."""
    tensors = [torch.randn(0), torch.randn(()), torch.randn(1025), torch.randn(40)[1:], torch.randn(5, 7).t()]
    return [copied(tensor.to(dtype)) for tensor in tensors]


def new_group(**wishes: Any) -> dict[str, Any]:
    return {"foreach": None, "fused": None, "memory": "fast", **wishes}


def member(param: Tensor, index: int = 0, group: dict[str, Any] | None = None, hess: float = 0.5) -> Member:
    """A parameter with the state of the first step."""
    dtype = state_dtype(param)
    state: dict[str, Any] = {"step": 0, "momentum": torch.zeros_like(param, dtype=dtype, requires_grad=False)}
    state["hess"] = torch.full_like(param, hess, dtype=dtype, requires_grad=False)
    if dtype != param.dtype:
        state["mean"] = param.detach().to(dtype, copy=True)
    return Member(param, state, new_group() if group is None else group, index)


def plan_of(engine: str, members: Sequence[Member], rule: Rule = RULE) -> Plan:
    return choice.ENGINES[engine](members, rule)


def hyper(**changes: float) -> Hyper:
    values = {"lr": 0.1, "ess": 1.0, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.9, "clip_radius": 1.0, "debias": 1.0}
    return Hyper(**{**values, **changes})


def stepped(
    engine: str, tensors: tuple[Tensor, ...], grad: Tensor, hhat: Tensor | None, its: StepSettings
) -> list[Tensor]:
    """Mean, momentum and h after a step from copies of `tensors`."""
    mean, momentum, hess = (tensor.clone() for tensor in tensors)
    each = member(mean)
    each.state.update(momentum=momentum, hess=hess)
    plan_of(engine, [each]).step([(0, grad, hhat)], [its])
    return [mean, momentum, hess]


def assert_close(found: Tensor, expected: Tensor, tolerance: float, what: str = "") -> None:
    """Equal to `tolerance` times the scale of the problem, which is one, or the largest number."""
    assert found.shape == expected.shape, what
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    assert bool(((found - expected).abs() <= tolerance * scale).all()), what


class Quadratics:
    """Noisy quadratics in every memory order, in two groups with hyperparameters of their own, run on plans.

    Args:
        approximation: of hhat; "given" hands hhat over.
        prior: m0 as a number, or "tensor".
        clip_radius: xi.
        factors: `grad_factor` and `clip_factor` of the step.
        starts: the parameters; tensors of every size and memory order if None.
    """

    def __init__(
        self,
        approximation: str = "reparam",
        prior: str = "0",
        clip_radius: float = math.inf,
        factors: tuple[float, float] = (1.0, 1.0),
        starts: list[Tensor] | None = None,
    ) -> None:
        self.approximation, self.prior, self.clip_radius, self.factors = approximation, prior, clip_radius, factors
        self.starts = list(layouts().values()) if starts is None else starts
        self.targets, self.curvatures, self.priors = (
            [torch.randn_like(start) for start in self.starts],
            [torch.rand_like(start) + 0.1 for start in self.starts],
            [torch.randn_like(start) for start in self.starts],
        )

    def run(self, engine: str, memory: str = "fast", keep_sample: bool = False) -> Iterator[dict[str, list[Tensor]]]:
        """Mean, momentum and h of all parameters after each step.

        Args:
            engine: whose plan is used.
            memory: of the groups.
            keep_sample: the sample is in the weights at the step, as after `train()`.
        """
        groups = [
            new_group(memory=memory, ess=ess, decay=decay, beta2=beta2)
            for ess, decay, beta2 in ((200.0, 1e-2, 0.9), (1000.0, 1e-3, 0.99))
        ]
        members = [member(copied(start), k, groups[k % 2]) for k, start in enumerate(self.starts)]
        for each, prior in zip(members, self.priors, strict=True):
            if self.prior == "tensor":
                each.state["prior_mean"] = copied(prior)
        plan = plan_of(engine, members)
        for t in itertools.count(1):
            noises = {id(group): Noise(derive_key(1, t), group["ess"], group["decay"]) for group in groups}
            plan.draw(noises)
            rows = [self._row(k, each.param) for k, each in enumerate(members)]
            if not keep_sample:
                plan.restore()
            assert plan.all_finite(rows)
            settings = [self._settings(noises[id(group)], t, group["beta2"]) for group in groups]
            plan.step(rows, [settings[k % 2] for k in range(len(members))])
            yield {
                "mean": [each.param for each in members],
                "momentum": [each.state["momentum"] for each in members],
                "hess": [each.state["hess"] for each in members],
            }

    def _row(self, k: int, sample: Tensor) -> tuple[int, Tensor, Tensor | None]:
        grad = self.curvatures[k] * (sample - self.targets[k]) / self.factors[0]
        return k, grad, self.curvatures[k] + 0.1 * grad if self.approximation == "given" else None

    def _settings(self, noise: Noise, t: int, beta2: float) -> StepSettings:
        rate = 0.1 if beta2 == 0.99 else 0.03
        scalars = Hyper(rate, *noise.scale, 0.9, beta2, self.clip_radius, 1.0 - 0.9**t)
        how = "reparam" if self.approximation == "given" else self.approximation
        number = 0.0 if self.prior == "tensor" else float(self.prior)
        return StepSettings(scalars, how, noise, number, *self.factors)  # type: ignore[arg-type]

    def compare(self, engine: str, steps: int, tolerance: float, **how: Any) -> None:
        """Each of some steps of an engine with the loop's."""
        pairs = zip(self.run(engine, **how), self.run("loop", **how), strict=True)
        for t, (found, expected) in enumerate(itertools.islice(pairs, steps), 1):
            for name in found:
                for new, old in zip(found[name], expected[name], strict=True):
                    assert_close(new, old, tolerance, f"{name} of {tuple(new.shape)} after step {t}")


class Twins:
    """A small model on one engine and its twin on the loop, trained alike and compared after every step.

    Args:
        engine: of the first model.
        dtype: of the parameters.
        way: "blocks", "modes" or "closure".
        kwargs: hyperparameters on top of the usual ones.
    """

    def __init__(self, engine: str, dtype: torch.dtype = torch.float32, way: str = "blocks", **kwargs: Any) -> None:
        torch.manual_seed(0)
        tensors = [torch.randn(shape) for shape in ((5, 4), (7,), (3, 3), (2, 3), (8,), (3,), ())]
        tensors += [torch.randn(2, 3, 2, 2).to(memory_format=torch.channels_last), torch.randn(6, 4).t()]
        first = [nn.Parameter(tensor.to(dtype)) for tensor in tensors]
        self.models = [first, [nn.Parameter(param.detach().clone()) for param in first]]
        options = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.99), "seed": 3, **kwargs}
        self.opts = [
            IVON(params, **options, **WISHES[name]) for params, name in zip(self.models, (engine, "loop"), strict=True)
        ]
        self.way = way
        self.tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 4 * torch.finfo(dtype).eps)

    def each(self) -> list[tuple[list[nn.Parameter], IVON]]:
        return list(zip(self.models, self.opts, strict=True))

    def opt(self, params: list[nn.Parameter]) -> IVON:
        return self.opts[0] if params is self.models[0] else self.opts[1]

    def step(
        self,
        inside: Callable[[list[nn.Parameter]], None] | None = None,
        between: Callable[[list[nn.Parameter]], None] | None = None,
    ) -> None:
        """One step of both; `inside` is called after backward at the sample, `between` before `step()` in blocks."""
        for params, opt in self.each():

            def backward(params: list[nn.Parameter] = params, opt: IVON = opt) -> Tensor:
                opt.zero_grad()
                loss = sum((p.float() * p.float()).sum() * (1.0 + 0.1 * k) for k, p in enumerate(params))
                assert isinstance(loss, Tensor)
                loss.backward()
                if inside is not None:
                    inside(params)
                return loss

            if self.way == "closure":
                opt.step(backward)
                continue
            if self.way == "modes":
                opt.train()
                backward()
            else:
                for _ in range(opt.param_groups[0]["mc_samples"]):
                    with opt.sampled_params(train=True):
                        backward()
                if between is not None:
                    between(params)
            opt.step()
        self.compare()

    def compare(self) -> None:
        for one, other in zip(*self.models, strict=True):
            torch.testing.assert_close(one, other, rtol=self.tolerance, atol=self.tolerance)
            for name, value in self.opts[0].state[one].items():
                expected = self.opts[1].state[other][name]
                torch.testing.assert_close(value, expected, rtol=10 * self.tolerance, atol=10 * self.tolerance)
