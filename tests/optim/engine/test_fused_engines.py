"""What the two engines with their own kernels, native and Triton, do alike."""

import math

import pytest
import torch

from tests.optim.engine.problems import (
    FUSED_ENGINES,
    assert_close,
    few_layouts,
    hyper,
    layouts,
    member,
    new_group,
    plan_of,
    stepped,
)  # fmt: skip
from varlearn.core.noise import derive_key
from varlearn.core.update import lowest_hess
from varlearn.optim.engine.plan import Approximation, Fold, Noise, StepSettings

FLOAT32_MAX = torch.finfo(torch.float32).max

pytestmark = pytest.mark.parametrize("engine", FUSED_ENGINES)
# NumPy, in which Triton's interpreter computes, warns of overflows.
overflows = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")


# The sample


def test_lean_and_kept_parameters_and_groups_go_together(engine: str) -> None:
    groups = [new_group(memory=memory) for memory in ("fast", "lean", "fast", "lean")]
    params = [torch.randn(size) for size in (3, 16, 130, 1500)]
    before = [param.clone() for param in params]
    plan = plan_of(engine, [member(param, k, groups[k]) for k, param in enumerate(params)])
    plan.draw({id(group): Noise(5 + k // 2, 10.0 if k < 2 else 1e6, 0.1) for k, group in enumerate(groups)})
    spreads = [float((new - old).std()) for new, old in zip(params, before, strict=True)]
    assert min(spreads[:2]) > 0.05
    assert 0.0 < max(spreads[2:]) < 0.01
    plan.restore()
    for k, (new, old) in enumerate(zip(params, before, strict=True)):
        torch.testing.assert_close(new, old, rtol=1e-6 * (k % 2), atol=1e-6 * (k % 2))


def test_a_parameter_may_for_a_while_have_another_scale_than_its_group(engine: str) -> None:
    each = member(torch.zeros(5000))
    plan, wide, narrow = plan_of(engine, [each]), Noise(5, 1.0, 0.5), Noise(5, 1e4, 0.5)
    for noises in ({id(each.group): wide}, {id(each.group): wide, id(each.param): narrow}, {id(each.group): wide}):
        plan.draw(noises)
        assert float(each.param.std()) == pytest.approx(0.01 if len(noises) == 2 else 1.0, rel=0.05)
        plan.restore()


def test_autograd_notices_the_writes(engine: str) -> None:
    weight = torch.ones(3, requires_grad=True)
    each = member(weight)
    plan = plan_of(engine, [each])
    noise = Noise(derive_key(0, 1), 30.0, 0.5)
    for write in (
        lambda: plan.draw({id(each.group): noise}),
        plan.restore,
        lambda: plan.step([(0, torch.ones(3), None)], [StepSettings(hyper(), "reparam", noise)]),
    ):
        loss = weight.square().sum()
        write()
        with pytest.raises(RuntimeError, match="inplace"):
            loss.backward()


# Averages over samples


@pytest.mark.parametrize("approximation", ["reparam", "squared_gradient"])
@pytest.mark.parametrize("keep_grad", [True, False])
def test_running_means_are_the_loop_s(engine: str, approximation: Approximation, keep_grad: bool) -> None:
    outcomes = []
    for name in (engine, "foreach", "loop"):
        torch.manual_seed(1)
        likes = few_layouts() if engine == "triton" else list(layouts().values())
        members = [member(like, 5 * k) for k, like in enumerate(likes)]
        for each in members:
            each.state["hess"] = torch.rand_like(each.param)
        plan = plan_of(name, members)
        means = [torch.randn_like(each.param) for each in members]
        grad_means = [torch.randn_like(each.param) if keep_grad else None for each in members]
        for count in (0, 3) if engine == "triton" else (0, 1, 2, 5):
            folds = []
            for k, each in enumerate(members):
                captured = torch.zeros_like(each.param) if keep_grad else None
                noise, grad = Noise(derive_key(0, count), 20.0, 0.1), torch.randn_like(each.param)
                folds.append((k, Fold(grad, grad_means[k], means[k], approximation, noise, count, captured)))
            plan.fold(folds)
            for _, fold in folds:
                assert fold.captured is None or torch.equal(fold.captured, fold.grad_mean)
        outcomes.append([each for each in (*means, *grad_means) if each is not None])
    for ours, foreach, plain in zip(*outcomes, strict=True):
        assert_close(ours, plain, 2e-6 if engine == "triton" else 1e-6)
        assert_close(foreach, plain, 1e-6)


def test_a_fold_of_other_kinds_is_the_loop_s(engine: str) -> None:
    outcomes = []
    for name in (engine, "loop"):
        torch.manual_seed(0)
        each = member(torch.randn(4, 6))
        grads = [torch.randn(6, 4).t(), torch.randn(4, 6, dtype=torch.float64), torch.randn(4, 6)]
        means = [torch.zeros(6, 4).t(), torch.zeros(4, 6, dtype=torch.float64), torch.zeros(4, 6)]
        estimate = torch.ones(4, 6)
        plan = plan_of(name, [each])
        for grad, mean in zip(grads, means, strict=True):
            plan.fold([(0, Fold(grad, mean, estimate, "reparam", Noise(1, 5.0, 0.1), 1))])
        outcomes.append([*means, estimate])
    for ours, plain in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


# Saturation


@pytest.mark.parametrize("decay", [1e-30, 1e-4, 0.3, 7.0])
@pytest.mark.parametrize("below", [0.0, 1.0])
def test_the_smallest_precision_is_the_loop_s(engine: str, decay: float, below: float) -> None:
    """At h = -delta and further down, where delta was lowered: sigma, hhat, h and m."""
    outcomes = []
    hess = torch.full((5,), lowest_hess(decay, torch.float32) - below)
    noise = Noise(3, 2.0, decay)
    scalars = hyper(lr=1e-20, ess=2.0, weight_decay=decay, beta1=0.5, beta2=0.5, clip_radius=math.inf)
    for name in (engine, "loop"):
        each = member(torch.zeros(5))
        each.state["hess"] = hess.clone()
        plan_of(name, [each]).draw({id(each.group): noise})
        states = [each.param]
        for estimate in (None, hess.clone()):
            tensors = torch.zeros(5), torch.ones(5), hess
            mean, _, h = stepped(name, tensors, torch.ones(5), estimate, StepSettings(scalars, "reparam", noise))
            states += [mean, h]
        outcomes.append(states)
    for ours, plain in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=0.0)


@overflows
@pytest.mark.parametrize("estimate", [math.inf, -math.inf, FLOAT32_MAX, 1e38])
def test_an_estimate_saturates_before_it_is_averaged(engine: str, estimate: float) -> None:
    its = StepSettings(hyper(beta2=0.99999), "reparam", Noise(1, 1.0, 0.1))
    tensors = torch.zeros(3), torch.zeros(3), torch.tensor([1.0, 1e30, 1e33])
    hhat = torch.full((3,), estimate)
    ours, plain = (stepped(name, tensors, torch.zeros(3), hhat, its)[2] for name in (engine, "loop"))
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=0.0)


@overflows
def test_nan_is_not_hidden_by_the_bounds(engine: str) -> None:
    grad = torch.tensor([1.0, math.nan, 1.0])
    tensors = torch.zeros(3), torch.zeros(3), torch.ones(3)
    for tensor in stepped(engine, tensors, grad, None, StepSettings(hyper(), "reparam", Noise(1, 1.0, 0.1))):
        assert tensor.isnan().tolist() == [False, True, False]
