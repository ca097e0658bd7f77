"""Every engine is the loop: the same noise, the same rule, compared after every step."""

import itertools
import math

import pytest
import torch
from torch import nn

from tests.optim.engine.problems import FAST_ENGINES, Quadratics, Twins, few_layouts, needs_compiler, needs_triton
from varlearn import IVON

CASES = list(
    itertools.product(
        ["reparam", "squared_gradient", "given"], ["0", "0.3", "tensor"], [math.inf, 0.05], [(1.0, 1.0), (-0.25, 0.5)]
    )
)


@pytest.mark.parametrize("engine", FAST_ENGINES)
@pytest.mark.parametrize(("approximation", "prior", "clip_radius", "factors"), CASES)
def test_every_combination(
    engine: str, approximation: str, prior: str, clip_radius: float, factors: tuple[float, float]
) -> None:
    Quadratics(approximation, prior, clip_radius, factors).compare(engine, steps=3, tolerance=2e-6)


@pytest.mark.parametrize("engine", FAST_ENGINES)
@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("keep_sample", [False, True])
@pytest.mark.parametrize("approximation", ["reparam", "squared_gradient", "given"])
def test_a_hundred_steps_in_every_memory_order(approximation: str, keep_sample: bool, memory: str, engine: str) -> None:
    """Each engine follows its own samples and its own gradients, so rounding errors add up: 10^-5 of the scale."""
    problem = Quadratics(approximation, "tensor", 1.0)
    problem.compare(engine, steps=100, tolerance=1e-5, memory=memory, keep_sample=keep_sample)


@needs_compiler
@pytest.mark.parametrize("approximation", ["reparam", "squared_gradient", "given"])
def test_a_hundred_steps_of_three_threads(approximation: str) -> None:
    torch.set_num_threads(3)
    Quadratics(approximation, "tensor", 1.0).compare("native", steps=100, tolerance=1e-5)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize("keep_sample", [False, True])
@pytest.mark.parametrize("approximation", ["reparam", "squared_gradient", "given"])
def test_a_hundred_steps_of_triton_in_the_interpreter(approximation: str, keep_sample: bool, memory: str) -> None:
    problem = Quadratics(approximation, "tensor", 1.0, starts=few_layouts())
    problem.compare("triton", steps=100, tolerance=1e-5, memory=memory, keep_sample=keep_sample)


@pytest.mark.parametrize("way", ["blocks", "modes", "closure"])
@pytest.mark.parametrize("memory", ["fast", "lean"])
@pytest.mark.parametrize(
    ("engine", "dtype"),
    [
        pytest.param("native", torch.float32, marks=needs_compiler),
        *(("foreach", dtype) for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)),
    ],
    ids=str,
)
def test_a_hundred_steps_in_every_way_of_training(engine: str, dtype: torch.dtype, memory: str, way: str) -> None:
    twins = Twins(engine, dtype, way, memory=memory)
    for _ in range(100):
        twins.step()
    (report,) = twins.opts[0].diagnostics()
    assert getattr(report, f"by_{engine}") == len(twins.models[0])


@pytest.mark.parametrize(
    "kwargs",
    [
        {"mc_samples": 3},
        {"max_grad_norm": 0.5, "prior_mean": 0.3},
        {"prior_mean": "init", "maximize": True, "lr": 0.001, "betas": (0.9, 0.9999)},
        {"hess_approx": "squared_gradient", "mc_samples": 2},
        {"clip_radius": 0.5, "rescale_lr": False, "weight_decay": 0.0},
    ],
    ids=str,
)
def test_a_hundred_steps_with_every_hyperparameter(engine: str, kwargs: dict[str, object]) -> None:
    twins = Twins(engine, **kwargs)
    for _ in range(100):
        twins.step()


@pytest.mark.parametrize("engine", FAST_ENGINES)
@pytest.mark.parametrize("ess", [1e2, 1e10], ids=str)
def test_a_hundred_steps_with_little_and_much_noise(engine: str, ess: float) -> None:
    twins = Twins(engine, ess=ess, lr=0.05, betas=(0.9, 0.9999))
    for _ in range(100):
        twins.step()


def test_dtypes_of_one_group_keep_their_own() -> None:
    """Of a group, float32 goes by the native engine where there is one, the others by foreach."""
    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float64, torch.float32]
    models = [[nn.Parameter(torch.linspace(1.0, 2.0, 6, dtype=dtype)) for dtype in dtypes] for _ in range(2)]
    settings = {"lr": 0.1, "ess": 1e4, "weight_decay": 1e-2, "seed": 3}
    opts = [IVON(models[0], **settings), IVON(models[1], **settings, foreach=False, fused=False)]
    for _ in range(5):
        for params, opt in zip(models, opts, strict=True):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                sum((param.double() ** 2).sum() for param in params).backward()
            opt.step()
    for param, other, dtype in zip(*models, dtypes, strict=True):
        tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
        torch.testing.assert_close(param, other, rtol=tolerance, atol=tolerance)
