"""After step() the mean is in the weights: in modes, with a closure, for dropped steps and missing gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract import assert_same
from tests.optim.engine.problems import WISHES, needs_compiler
from varlearn import IVON

KWARGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.99), "seed": 1}
engines = pytest.mark.parametrize("engine", ["loop", "foreach", pytest.param("native", marks=needs_compiler)])
memories = pytest.mark.parametrize("memory", ["fast", "lean"])
ways = pytest.mark.parametrize("way", ["modes", "closure", "closure of two samples"])


def trained(engine: str, memory: str, **kwargs: Any) -> tuple[list[nn.Parameter], IVON]:
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(shape)) for shape in ((5, 4), (7,), (), (300,))]
    opt = IVON(params, **{**KWARGS, **WISHES[engine], "memory": memory, **kwargs})
    take(opt, "blocks", lambda: loss_of(params))
    return params, opt


def loss_of(params: list[nn.Parameter], factor: float = 1.0) -> Tensor:
    return torch.stack([param.square().sum() * factor for param in params]).sum()


def take(opt: IVON, way: str, loss: Callable[[], Tensor]) -> None:
    """One step; the sample is in the weights when the gradients are taken."""

    def closure() -> Tensor:
        opt.zero_grad()
        value = loss()
        value.backward()
        return value

    if way == "blocks":
        with opt.sampled_params(train=True):
            closure()
        opt.step()
    elif way == "modes":
        opt.train()
        closure()
        opt.step()
    else:
        opt.param_groups[0]["mc_samples"] = 2 if "two" in way else 1
        opt.step(closure)
    assert not opt.is_sampled


def means(params: list[nn.Parameter]) -> list[Tensor]:
    return [param.detach().clone() for param in params]


def assert_mean(found: list[Tensor], expected: list[Tensor], memory: str) -> None:
    tolerance = 0.0 if memory == "fast" else 1e-5  # lean recovers the mean to an ulp of the sample
    for new, old in zip(found, expected, strict=True):
        torch.testing.assert_close(new, old, rtol=tolerance, atol=tolerance)


@engines
@memories
@pytest.mark.parametrize("way", ["modes", "closure"])
def test_the_step_is_that_of_a_block(way: str, memory: str, engine: str) -> None:
    outcomes = []
    for each in ("blocks", way):
        params, opt = trained(engine, memory)
        take(opt, each, lambda params=params: loss_of(params))
        outcomes.append(means(params))
        state = [opt.state[param]["hess"] for param in params]
    assert_mean(outcomes[1], outcomes[0], memory)
    with opt.sampled_params():
        assert not torch.equal(params[3], outcomes[1][3])
    assert_mean(means(params), outcomes[1], memory)
    assert len(state) == 4


@ways
@engines
@memories
@pytest.mark.parametrize("nonfinite", ["skip", "raise"])
def test_a_step_that_is_dropped_for_nan_leaves_everything(way: str, memory: str, engine: str, nonfinite: str) -> None:
    params, opt = trained(engine, memory, nonfinite=nonfinite)
    mean = means(params)
    state = [{name: torch.as_tensor(value).clone() for name, value in opt.state[param].items()} for param in params]
    if nonfinite == "raise":
        with pytest.raises(FloatingPointError):
            take(opt, way, lambda: loss_of(params, torch.nan))
    else:
        take(opt, way, lambda: loss_of(params, torch.nan))
    assert not opt.is_sampled
    assert opt.skipped_steps == 1
    assert_mean(means(params), mean, memory)
    assert_same([{name: torch.as_tensor(v) for name, v in opt.state[param].items()} for param in params], state)


@ways
@engines
@memories
@pytest.mark.parametrize("used", [[], [1], [0, 3]], ids=str)
def test_parameters_without_a_gradient_get_their_mean_back(way: str, memory: str, engine: str, used: list[int]) -> None:
    params, opt = trained(engine, memory)
    mean = means(params)
    anchor = torch.zeros((), requires_grad=True)
    take(opt, way, lambda: sum((params[k].square().sum() for k in used), anchor.square()))
    now = means(params)
    unused = [k for k in range(len(params)) if k not in used]
    assert_mean([now[k] for k in unused], [mean[k] for k in unused], memory)
    assert not any(torch.equal(now[k], mean[k]) for k in used)
    assert [opt.state[param]["step"] for param in params] == [2 if k in used else 1 for k in range(len(params))]
    with opt.sampled_params():
        pass
    assert_mean(means(params), now, memory)


@engines
@memories
def test_a_closure_that_fails_leaves_the_mean(engine: str, memory: str) -> None:
    params, opt = trained(engine, memory)
    mean = means(params)

    def fails() -> Tensor:
        loss_of(params).backward()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opt.step(fails)
    assert not opt.is_sampled
    assert_mean(means(params), mean, memory)
