"""A rule of the user's own: variational SGD in forty lines, on both engines of tensor operations, saved and loaded."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract import TinyNet, assert_same, in_block, mse, snapshot
from varlearn.core import update
from varlearn.core.rule import Rule
from varlearn.optim.variational import VariationalOptimizer


def no_estimate(_: str, grad: Tensor, hess: Tensor, *rest: object) -> Tensor:
    return hess


def sgd_step(
    values: tuple[Tensor, ...], grad: Tensor, hhat: Tensor, lr: float, prior_mean: Tensor | float
) -> tuple[Tensor, ...]:
    mean, velocity, hess = values
    velocity = 0.9 * velocity + grad
    return mean - lr * velocity, velocity, hess


SGD = Rule(
    name="sgd",
    state=("velocity", "hess"),
    initial={"hess": "precision"},
    curvature="hess",
    std=update.std,
    estimate=no_estimate,
    step=sgd_step,
)


class VariationalSGD(VariationalOptimizer):
    """SGD with momentum whose gradients are taken at samples of a fixed width."""

    rule = SGD

    def __init__(self, params: Any, lr: float, ess: float, **options: Any) -> None:
        super().__init__(params, {"lr": lr, "ess": ess, "weight_decay": 0.0, "precision": 1.0, **options})

    def _hyper(self, group: dict[str, Any], step: int) -> float:
        return float(group["lr"])


ENGINES = {"loop": {"foreach": False, "fused": False}, "foreach": {"foreach": True}, "default": {}}


def trained(steps: int, **options: Any) -> tuple[TinyNet, VariationalSGD]:
    model = TinyNet()
    opt = VariationalSGD(model.parameters(), lr=0.01, ess=1e4, seed=0, **options)
    run(model, opt, range(steps))
    return model, opt


def run(model: TinyNet, opt: VariationalSGD, steps: range) -> None:
    for index in steps:
        in_block(opt, lambda index=index: mse(model, index))
        opt.step()


@pytest.mark.parametrize("engine", ENGINES)
def test_it_is_sgd_with_momentum_at_samples(engine: str) -> None:
    model, opt = trained(0, **ENGINES[engine])
    twin = TinyNet()
    sgd = torch.optim.SGD(twin.parameters(), lr=0.01, momentum=0.9)
    for index in range(5):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            sample = [param.detach().clone() for param in model.parameters()]
            mse(model, index).backward()
        sgd.zero_grad()
        for param, source, at in zip(twin.parameters(), model.parameters(), sample, strict=True):
            assert not torch.equal(at, source)
            assert source.grad is not None
            param.grad = source.grad.clone()
        opt.step()
        sgd.step()
        for param, source in zip(twin.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(source, param, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("memory", ["fast", "lean"])
def test_it_learns_alike_on_both_engines(memory: str) -> None:
    runs = [trained(100, memory=memory, **ENGINES[engine]) for engine in ("loop", "foreach", "default")]
    first = [param.detach() for param in runs[0][0].parameters()]
    for model, opt in runs[1:]:
        assert {plan.engine for plan in opt._members._plans} == {"foreach"}  # there is no kernel of this rule
        for param, expected in zip(model.parameters(), first, strict=True):
            torch.testing.assert_close(param.detach(), expected, rtol=1e-5, atol=1e-5)
    after, before = (sum(mse(net, index).item() for index in range(20)) for net in (runs[0][0], TinyNet()))
    assert after < 0.5 * before


@pytest.mark.parametrize("engine", ENGINES)
def test_a_resumed_run_gives_the_same_weights(engine: str) -> None:
    model, opt = trained(5, **ENGINES[engine])
    file = io.BytesIO()
    torch.save((model.state_dict(), opt.state_dict()), file)
    run(model, opt, range(5, 10))
    other, resumed = trained(0, **ENGINES[engine])
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    other.load_state_dict(weights)
    resumed.load_state_dict(state)
    run(other, resumed, range(5, 10))
    assert_same(snapshot(opt), snapshot(resumed))


@pytest.mark.parametrize("way", ["modes", "closure"])
def test_the_other_ways_of_training_are_those_of_a_block(way: str) -> None:
    model, opt = trained(1)
    expected, _ = trained(2)

    def closure() -> Tensor:
        opt.zero_grad()
        loss = mse(model, 1)
        loss.backward()
        return loss

    act: dict[str, Callable[[], object]] = {"modes": lambda: (opt.train(), closure(), opt.step())}
    act["closure"] = lambda: opt.step(closure)
    act[way]()
    assert_same([p.detach() for p in model.parameters()], [p.detach() for p in expected.parameters()])


def test_its_hyperparameters_are_checked_and_unknown_ones_are_not_asked_for() -> None:
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match="ess=0.0 must be > 0"):
        VariationalSGD([weight], lr=0.1, ess=0.0)
    assert "betas" not in VariationalSGD([weight], lr=0.1, ess=1.0).param_groups[0]
