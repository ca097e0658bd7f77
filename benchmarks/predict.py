"""Averaging over posterior samples: what it costs beyond the forward passes and the noise."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.contenders import select
from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.step import nothing
from benchmarks.tables import Column
from benchmarks.timing import QUICK, Budget, take_turns
from benchmarks.workloads import images
from varlearn.models import resnet20
from varlearn.posterior import DiagGaussian
from varlearn.prediction import predict

_FORWARD, _DRAWS, _PREDICT, _VECTORIZED = "forward passes", "drawing the samples", "predict", "predict, vectorize=True"

CASE = "ResNet-20, 512 images, 4 samples"

Batches = list[tuple[Tensor, Tensor]]


def mlp() -> nn.Module:
    """A small model, for which calling operators costs more than what they compute."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def digits(count: int) -> tuple[Tensor, Tensor]:
    """Random images of 8 x 8."""
    return torch.randn(count, 1, 8, 8), torch.randint(10, (count,))


def measure(quick: bool) -> list[Figure]:
    """A convolutional network and a small one."""
    if quick:
        small = _case("MLP, 32 digits, 2 samples", mlp, [digits(16) for _ in range(2)], 2, QUICK)
        return small + _case(
            "ResNet-20, 4 images, 2 samples", resnet20, [images(2, side=8) for _ in range(2)], 2, QUICK
        )
    budget = Budget(rounds=15, seconds=50.0, least=5, warmup=1)
    network = _case(CASE, resnet20, [images(128) for _ in range(4)], 4, budget)
    return network + _case(
        "MLP, 1,000 digits, 64 samples", mlp, [digits(100) for _ in range(10)], 64, budget._replace(rounds=50)
    )


def _case(name: str, build: Callable[[], nn.Module], loader: Batches, samples: int, budget: Budget) -> list[Figure]:
    torch.manual_seed(0)
    model = build()
    posterior = _posterior(model)
    model.eval()
    turns = {
        _FORWARD: partial(_forward, model, loader, samples),
        _DRAWS: partial(_draw, posterior, samples),
        _PREDICT: partial(predict, model, posterior, loader, samples, progress=False),
        _VECTORIZED: partial(predict, model, posterior, loader, samples, progress=False, vectorize=True),
    }
    timings = take_turns(turns, budget)
    figures: list[Figure] = []
    for row, seconds in timings.seconds.items():
        figure: Figure = {
            "case": name,
            "contender": row,
            "rounds": timings.rounds,
            "ms_min": timings.least_ms(row),
            "ms_median": timings.median_ms(row),
            "over_forward": timings.ratio(row, _FORWARD),
        }
        if row in (_PREDICT, _VECTORIZED):
            parts = zip(seconds, timings.seconds[_DRAWS], timings.seconds[_FORWARD], strict=True)
            figure["without_draws"] = statistics.median((whole - draws) / passes for whole, draws, passes in parts)
        figures.append(figure)
    return figures


def _posterior(model: nn.Module) -> DiagGaussian:
    """What an optimizer has after one step on gradients of zero."""
    contender = select("varlearn foreach")[0]
    params = list(model.parameters())
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer = contender.build(params)
    contender.drive(optimizer, nothing)
    return DiagGaussian.from_optimizer(model, optimizer)


@torch.no_grad()
def _forward(model: nn.Module, loader: Batches, samples: int) -> None:
    for _ in range(samples):
        for inputs, _ in loader:
            model(inputs)


def _draw(posterior: DiagGaussian, samples: int) -> None:
    for index in range(samples):
        posterior.sample(seed=0, index=index)


PART = Part(
    name="predict",
    title="posterior samples over a test set",
    columns=(
        Column("contender", "what"),
        Column("ms_min", "ms, least", ".4g"),
        Column("ms_median", "ms, median", ".4g"),
        Column("over_forward", "x forward passes", ".3f"),
        Column("without_draws", "the same without the draws", ".3f", is_main=True),
        Column("rounds", "rounds", "d"),
    ),
    measure=measure,
)
