"""One huge but finite gradient does not freeze a weight for the rest of the run."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from varlearn.optim import BBB, IVON, AdaHessian, VAdamW
from varlearn.optim.saturation import EVERY
from varlearn.optim.variational import VariationalOptimizer

ENGINES: dict[str, dict[str, Any]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def push(opt: VariationalOptimizer, weight: Tensor, gradient: Tensor) -> None:
    with opt.sampled_params(train=True):
        opt.zero_grad()
        (weight * gradient).sum().backward()
    opt.step()


def quadratic(opt: VariationalOptimizer, weight: Tensor, steps: int) -> None:
    for _ in range(steps):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            (weight - 1.0).square().sum().backward()
        opt.step()


def make(engine: str = "loop", dtype: torch.dtype = torch.float32, beta2: float = 0.99999) -> tuple[IVON, Tensor]:
    weight = torch.zeros(5, dtype=dtype, requires_grad=True)
    return IVON([weight], lr=0.1, ess=100.0, betas=(0.9, beta2), seed=0, **ENGINES[engine]), weight


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("beta2", [0.9, 0.999, 0.99999])
@pytest.mark.parametrize("first", [0, 63, 70])
def test_a_weight_moves_again_after_a_huge_gradient(
    engine: str, dtype: torch.dtype, beta2: float, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    opt, weight = make(engine, dtype, beta2)
    quadratic(opt, weight, first)
    huge = torch.zeros(5, dtype=dtype)
    huge[2] = 1e25
    with caplog.at_level(logging.WARNING, logger="varlearn"):
        push(opt, weight, huge)
        quadratic(opt, weight, EVERY)
        assert opt.saturated_weights == 1
        assert opt.skipped_steps == 0
        assert float(opt.state[weight]["hess"].max()) < 100.0
        quadratic(opt, weight, 200)
    assert float((weight.detach().float() - 1.0).abs().max()) < 0.5
    assert sum("hess_init" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_the_other_weights_are_as_if_nothing_had_happened(engine: str) -> None:
    opt, weight = make(engine)
    other_opt, other = make(engine)
    huge = torch.zeros(5)
    huge[2] = 1e25
    push(opt, weight, huge)
    push(other_opt, other, torch.zeros(5))
    quadratic(opt, weight, 2 * EVERY)
    quadratic(other_opt, other, 2 * EVERY)
    rest = torch.tensor([0, 1, 3, 4])
    torch.testing.assert_close(weight.detach()[rest], other.detach()[rest], rtol=1e-6, atol=1e-7)


def test_ordinary_values_are_left_alone() -> None:
    """h of 1e20, far above anything a run visits, is the paper's rule and stays."""
    opt, weight = make()
    quadratic(opt, weight, 1)
    opt.state[weight]["hess"][1] = 1e20
    quadratic(opt, weight, 2 * EVERY)
    assert opt.saturated_weights == 0
    assert float(opt.state[weight]["hess"][1]) > 1e19


def test_a_resumed_run_recovers_at_the_same_step() -> None:
    opt, weight = make()
    push(opt, weight, torch.full((5,), 1e25))
    quadratic(opt, weight, 20)
    resumed, copied = make()
    copied.data.copy_(weight.data)
    resumed.load_state_dict(opt.state_dict())
    for each, its in ((opt, weight), (resumed, copied)):
        quadratic(each, its, EVERY)
    assert torch.equal(weight, copied)
    assert opt.saturated_weights == resumed.saturated_weights == 5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("gradient", [1e25, 1e30, 1e38])
@pytest.mark.parametrize("others", ["quiet", "huge too"])
def test_the_second_moment_of_vadamw_recovers(engine: str, gradient: float, others: str) -> None:
    """AdamW's second moment is infinite after such a gradient, and its weight never moves again."""
    weight = torch.zeros(5, requires_grad=True)
    opt = VAdamW([weight], lr=0.05, n=1000, batch_size=10, seed=0, weight_decay=0.0, **ENGINES[engine])
    quadratic(opt, weight, 10)
    huge = torch.zeros(5)
    huge[2 : 3 if others == "quiet" else 5] = gradient
    push(opt, weight, huge)
    quadratic(opt, weight, EVERY)
    assert opt.saturated_weights == int(torch.count_nonzero(huge))
    assert bool(opt.state[weight]["exp_avg_sq"].isfinite().all())
    quadratic(opt, weight, 200)
    assert float((weight.detach() - 1.0).abs().max()) < 0.2


def test_the_second_moment_of_vadamw_restarts_at_the_mean_of_the_others() -> None:
    weight = torch.zeros(4, requires_grad=True)
    opt = VAdamW([weight], lr=0.0, n=1000, batch_size=10, betas=(0.9, 0.5), seed=0)
    for _ in range(EVERY - 1):
        push(opt, weight, torch.tensor([0.0, 2.0, 4.0, 0.0]))
    push(opt, weight, torch.tensor([0.0, 2.0, 4.0, 1e30]))
    assert opt.state[weight]["exp_avg_sq"].tolist() == pytest.approx([0.0, 4.0, 16.0, 20.0 / 3.0], rel=1e-5)
    assert float(opt.state[weight]["exp_avg"][3]) == 0.0


@pytest.mark.parametrize("engine", ["loop", "foreach"])
def test_the_averages_of_bbb_recover(engine: str) -> None:
    """Adam's two averages of squares, of the mean's gradient and of rho's, are infinite after such a gradient."""
    weight = torch.zeros(5, requires_grad=True)
    opt = BBB([weight], lr=0.05, ess=100.0, seed=0, foreach=engine == "foreach")
    quadratic(opt, weight, 10)
    huge = torch.zeros(5)
    huge[2] = 1e25
    push(opt, weight, huge)
    quadratic(opt, weight, EVERY)
    assert opt.saturated_weights == 2  # a mean and a rho
    quadratic(opt, weight, 200)
    assert float((weight.detach() - 1.0).abs().max()) < 0.2


@pytest.mark.parametrize("engine", ["loop", "foreach"])
def test_the_squared_diagonal_of_adahessian_recovers(engine: str) -> None:
    weight = torch.zeros(5, requires_grad=True)
    opt = AdaHessian([weight], lr=0.05, seed=0, foreach=engine == "foreach")

    def step(steps: int, factor: Tensor) -> None:
        for _ in range(steps):
            opt.zero_grad()
            opt.backward((factor * (weight - 1.0).square()).sum())
            opt.step()

    step(10, torch.ones(5))
    step(1, torch.tensor([1.0, 1.0, 1e25, 1.0, 1.0]))
    step(EVERY, torch.ones(5))
    assert opt.saturated_weights == 1
    step(200, torch.ones(5))
    assert float((weight.detach() - 1.0).abs().max()) < 0.2


def test_the_averages_are_looked_at_every_64_steps() -> None:
    opt, weight = make()
    counts = []
    for step in range(1, 129):
        push(opt, weight, torch.full((5,), 1e25 if step == 3 else 1.0))
        counts.append(opt.saturated_weights)
    assert counts == [0] * 63 + [5] * 65
