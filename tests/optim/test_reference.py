"""The optimizer against the plain transcription of Algorithm 1: the same noise, compared after each of 100 steps."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.reference.algorithm1 import Algorithm1, Settings, Vector
from varlearn import IVON
from varlearn.core.noise import fold_in, normal_

# Algorithm 1 with every combination of its options, among them clipping with rescaling, of which IVON warns.
pytestmark = pytest.mark.filterwarnings("ignore:clip_radius=:UserWarning")

STEPS = 100
PATHS = {"loop": {"foreach": False, "fused": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
# Relative errors. NORM: of the whole vector, in the 2-norm. ENTRY: of the worst entry, over the largest value that its
# tensor has had. A clipped entry moves by the same amount each step and is rounded the same way each time, so in
# float32 the errors of 100 steps add up; STEP is the bound for one step from equal states.
NORM = {torch.float64: 1e-12, torch.float32: 1e-6}
ENTRY = {torch.float64: 1e-10, torch.float32: 1e-5}
STEP = 1e-6
PRIOR_MEANS = {"zero": None, "number": 0.3, "tensor": "tensor"}
# Odd and even numbers of elements, none, one, and a layout that is not row-major.
SHAPES = [(5,), (), (2, 3), (0,), (1, 3, 2, 2)]


OPTIONS = {
    "clip_radius": [math.inf, 0.2],
    "rescale_lr": [True, False],
    "weight_decay": [0.0, 0.05],
    "debias": [True, False],
    "maximize": [False, True],
    "prior_mean": list(PRIOR_MEANS),
}


def every_combination() -> list[dict[str, Any]]:
    """One parameter group per combination of options."""
    return [dict(zip(OPTIONS, values, strict=True)) for values in itertools.product(*OPTIONS.values())]


def every_pair() -> list[dict[str, Any]]:
    """All combinations of clipping, rescaling and decay; among the other options each pair of values occurs."""
    groups = []
    for i, (clip, rescale, decay) in enumerate(itertools.product((0, 1), repeat=3)):
        choice = (clip, rescale, decay, clip ^ rescale, rescale ^ decay, i % 3)
        groups.append({name: values[k] for (name, values), k in zip(OPTIONS.items(), choice, strict=True)})
    return groups


def flat(tensor: Tensor) -> Tensor:
    """The entries in memory order, which is how noise is numbered."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def numbers(tensor: Tensor) -> Vector:
    return flat(tensor).to(torch.float64).numpy().copy()


class Lockstep:
    """IVON and one `Algorithm1` per parameter, on the loss sum a/2 (w - c)^2 + cos(2 w)/4 and the same noise.

    The loss is multiplied by -1 where a group maximizes, so that both directions have an optimum.
    """

    def __init__(self, groups: list[dict[str, Any]], dtype: torch.dtype, path: str, **defaults: Any) -> None:
        generator = torch.Generator().manual_seed(5)
        self.params: list[Tensor] = []
        self.signs: list[float] = []
        self.references: list[Algorithm1] = []
        self.curvatures: list[Tensor] = []
        self.centres: list[Tensor] = []
        arguments = []
        for options, shape in zip(groups, itertools.cycle(SHAPES), strict=False):
            draw = lambda: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)  # noqa: B023, E731
            weight = draw()
            if weight.dim() == 4:
                weight = weight.contiguous(memory_format=torch.channels_last)
            param = torch.nn.Parameter(weight)
            self.params.append(param)
            self.curvatures.append(torch.empty_like(param).copy_(0.5 + draw().abs()).detach())
            self.centres.append(torch.empty_like(param).copy_(draw()).detach())
            merged = {**defaults, **options}
            prior = PRIOR_MEANS[merged.pop("prior_mean", "zero")]
            arguments.append({**merged, "params": [param], "prior_mean": [draw()] if prior == "tensor" else prior})
            m0 = torch.zeros(shape) if prior is None else torch.full(shape, 0.3, dtype=torch.float64)
            m0 = arguments[-1]["prior_mean"][0] if prior == "tensor" else m0
            m0 = torch.empty_like(param, dtype=torch.float64).copy_(m0)
            self.references.append(Algorithm1(numbers(param), self.settings(merged), numbers(m0)))
            self.signs.append(-1.0 if merged.get("maximize") else 1.0)
        self.optimizer = IVON(arguments, lr=0.1, ess=100.0, seed=11, **PATHS[path])
        self.dtype, self.tolerance = dtype, ENTRY[dtype]
        self.scales: dict[tuple[str, int], float] = {}

    @staticmethod
    def settings(options: dict[str, Any]) -> Settings:
        beta1, beta2 = options.get("betas", (0.9, 0.99999))
        return Settings(
            alpha=options.get("lr", 0.1),
            lam=options.get("ess", 100.0),
            h0=options.get("hess_init", 1.0),
            beta1=beta1,
            beta2=beta2,
            delta=options.get("weight_decay", 1e-4),
            xi=options.get("clip_radius", math.inf),
            rescale=options.get("rescale_lr", True),
            debias=options.get("debias", True),
            maximize=options.get("maximize", False),
            squared_gradient=options.get("hess_approx") == "squared_gradient",
        )

    def loss(self) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for w, a, c, sign in zip(self.params, self.curvatures, self.centres, self.signs, strict=True):
            total = total + sign * (0.5 * a * (w - c) ** 2 + 0.25 * torch.cos(2.0 * w)).sum().double()
        return total

    def gradient(self, index: int, theta: Vector) -> Vector:
        a, c = numbers(self.curvatures[index]), numbers(self.centres[index])
        return self.signs[index] * (a * (theta - c) - 0.5 * np.sin(2.0 * theta))

    def noise(self, index: int) -> Vector:
        """What the next training sample adds to parameter `index`, in units of sigma."""
        group = self.optimizer.param_groups[index]
        out = torch.empty(self.params[index].numel(), dtype=self.params[index].dtype)
        return numbers(normal_(out, fold_in(self.optimizer._noise(group, train=True).key, index)))

    def step(self, samples: int) -> None:
        thetas: list[list[Vector]] = [[] for _ in self.params]
        for _ in range(samples):
            for index, reference in enumerate(self.references):
                thetas[index].append(reference.sample(self.noise(index)))
            with self.optimizer.sampled_params(train=True):
                self.optimizer.zero_grad()
                self.loss().backward()
                for index, param in enumerate(self.params):
                    self.agree("sample", index, param, thetas[index][-1])
        self.optimizer.step()
        for index, reference in enumerate(self.references):
            reference.step(thetas[index], [self.gradient(index, theta) for theta in thetas[index]])

    def start_from_equal_states(self) -> None:
        """Give the references the optimizer's state, so that the next comparison sees the errors of one step."""
        self.tolerance = STEP
        self.scales.clear()
        for param, reference in zip(self.params, self.references, strict=True):
            state = self.optimizer.state[param]
            if state:
                reference.m, reference.h = numbers(param), numbers(state["hess"])
                reference.g = numbers(state["momentum"])

    def compare(self) -> None:
        """All of mean, hess and momentum after a step: entry by entry, and each as one vector."""
        squares: dict[str, list[float]] = {"mean": [0.0, 0.0], "hess": [0.0, 0.0], "momentum": [0.0, 0.0]}
        for index, (param, reference) in enumerate(zip(self.params, self.references, strict=True)):
            state = self.optimizer.state[param]
            assert state["step"] == reference.t
            for name, ours, theirs in (
                ("mean", param, reference.m),
                ("hess", state["hess"], reference.h),
                ("momentum", state["momentum"], reference.g),
            ):
                self.agree(name, index, ours, theirs)
                squares[name][0] += float(((numbers(ours) - theirs) ** 2).sum())
                squares[name][1] += float((theirs**2).sum())
        for name, (error, size) in squares.items():
            relative = math.sqrt(error / size)
            assert relative <= NORM[self.dtype], f"{name}: off by {relative:.2e} at step {self.references[0].t}"

    def agree(self, name: str, index: int, ours: Tensor, theirs: Vector) -> None:
        # Momentum is made of gradients and may be small by cancellation; those of the first steps are of order 1.
        largest = max([1.0 if name == "momentum" else 0.0, *np.abs(theirs)])
        scale = self.scales[name, index] = max(self.scales.get((name, index), 0.0), largest)
        worst = max([0.0, *np.abs(numbers(ours) - theirs)])
        if worst > self.tolerance * scale:
            group = {key: value for key, value in self.optimizer.param_groups[index].items() if key != "params"}
            step = self.references[index].t
            pytest.fail(f"{name} at step {step}: off by {worst / scale:.2e} of the scale {scale:.3g} in {group}")


def runs() -> Iterator[Any]:
    """Every path, dtype and number of samples with `every_combination`, which is slow; some with `every_pair`."""
    quick = {("loop", torch.float64, 1), ("loop", torch.float64, 4), ("loop", torch.float32, 4)}
    quick |= {("foreach", torch.float32, 1), ("foreach", torch.float64, 4)}
    quick |= {("fused", torch.float32, 1), ("fused", torch.float32, 4)}
    for run in itertools.product(PATHS, NORM, (1, 4)):
        name = "-".join(str(part) for part in run)
        if run in quick:
            yield pytest.param(every_pair, *run, id=f"pairs-{name}")
        yield pytest.param(every_combination, *run, id=f"all-{name}", marks=pytest.mark.slow)


@pytest.mark.parametrize(("groups", "path", "dtype", "samples"), list(runs()))
def test_options_agree_at_each_of_100_steps(
    groups: Callable[[], list[dict[str, Any]]], path: str, dtype: torch.dtype, samples: int
) -> None:
    run = Lockstep(groups(), dtype, path, betas=(0.9, 0.999))
    for _ in range(STEPS):
        run.step(samples)
        run.compare()


@pytest.mark.parametrize(
    ("path", "dtype", "hess_approx"),
    [
        ("loop", torch.float64, "reparam"),
        ("loop", torch.float64, "squared_gradient"),
        ("loop", torch.float32, "reparam"),
        ("foreach", torch.float32, "reparam"),
        ("foreach", torch.float64, "squared_gradient"),
        ("fused", torch.float32, "reparam"),
        ("fused", torch.float32, "squared_gradient"),
    ],
    ids=str,
)
def test_groups_with_their_own_numbers_agree(path: str, dtype: torch.dtype, hess_approx: str) -> None:
    groups: list[dict[str, Any]] = [
        {"lr": 0.5, "ess": 1e6, "hess_init": 0.05, "betas": (0.9, 0.99999), "weight_decay": 1e-4},
        {"lr": 0.01, "ess": 50.0, "hess_init": 2.0, "betas": (0.0, 0.9), "weight_decay": 0.1},
        {"lr": 0.1, "ess": 1e3, "hess_init": 0.5, "betas": (0.99, 0.95), "weight_decay": 0.0, "clip_radius": 1e-2},
        {"lr": 0.2, "ess": 2e4, "hess_init": 1.0, "betas": (0.5, 0.0), "weight_decay": 1e-5, "rescale_lr": False},
        {"lr": 0.0, "ess": 1e2, "hess_init": 1.0, "betas": (0.9, 0.99), "weight_decay": 1e-3},
    ]
    run = Lockstep([{**group, "hess_approx": hess_approx} for group in groups], dtype, path)
    for step in range(STEPS):
        if dtype == torch.float32:
            run.start_from_equal_states()
        run.step(samples=1 + step % 3)
        run.compare()


def test_hyperparameters_changed_while_training_take_effect_at_the_next_step() -> None:
    run = Lockstep([{"weight_decay": 0.01}, {"weight_decay": 0.02, "clip_radius": 0.1}], torch.float64, "loop")
    for step in range(30):
        for group, reference in zip(run.optimizer.param_groups, run.references, strict=True):
            group["lr"], group["ess"] = 0.1 / (1 + step), 100.0 * (1 + step)
            group["weight_decay"], group["betas"] = 0.01 * (1 + step % 5), (0.9, 0.9 + 0.003 * step)
            reference.settings = Lockstep.settings(group)
        run.step(samples=2)
        run.compare()


def test_the_comparison_notices_a_small_error() -> None:
    run = Lockstep([{"betas": (0.9, 0.99), "weight_decay": 0.01}], torch.float64, "loop")
    run.step(samples=1)
    run.compare()
    run.references[0].h *= 1.0 + 1e-9
    with pytest.raises(pytest.fail.Exception, match="hess at step 1"):
        run.compare()
