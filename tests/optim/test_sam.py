"""SAM and Bayesian SAM: their perturbations by hand, their blocks and closures, and what they refuse."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract import TinyNet, mse
from varlearn.optim import BSAM, SAM


def by_hand(model: nn.Module, rho: float, index: int = 0) -> list[Tensor]:
    """SAM's gradient: at the weights moved by rho along the gradient."""
    twin = TinyNet()
    twin.load_state_dict(model.state_dict())
    mse(twin, index).backward()
    norm = torch.sqrt(sum((p.grad.square().sum() for p in twin.parameters() if p.grad is not None), torch.zeros(())))
    with torch.no_grad():
        for param in twin.parameters():
            assert param.grad is not None
            param += rho * param.grad / norm
    return list(torch.autograd.grad(mse(twin, index), list(twin.parameters())))


def test_sam_steps_with_the_gradient_at_the_moved_weights() -> None:
    model, twin = TinyNet(), TinyNet()
    opt = SAM(model.parameters(), lr=0.05, rho=0.2, weight_decay=0.01)
    sgd = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    for index in range(5):
        grads = by_hand(twin, 0.2, index)
        for param, grad in zip(twin.parameters(), grads, strict=True):
            param.grad = grad
        sgd.step()

        def closure(index: int = index) -> Tensor:
            opt.zero_grad()
            loss = mse(model, index)
            loss.backward()
            return loss

        opt.step(closure)
    for param, expected in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(param, expected, rtol=1e-4, atol=1e-6)


def test_two_blocks_add_up_and_each_has_its_own_perturbation() -> None:
    model = TinyNet()
    opt = SAM(model.parameters(), lr=0.05, rho=0.2)
    for index in range(2):
        with opt.two_passes():
            (0.5 * mse(model, index)).backward()
            opt.perturb()
            (0.5 * mse(model, index)).backward()
    expected = [0.5 * (a + b) for a, b in zip(by_hand(model, 0.2, 0), by_hand(model, 0.2, 1), strict=True)]
    for param, grad in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(param.grad, grad, rtol=1e-4, atol=1e-6)


def sam_of(weight: nn.Parameter) -> Any:
    return SAM([weight], lr=0.1)


def bsam_of(weight: nn.Parameter) -> Any:
    return BSAM([weight], lr=0.1, ess=100.0, seed=0)


def block_of(opt: Any) -> Any:
    return opt.two_passes() if isinstance(opt, SAM) else opt.sampled_params(train=True)


both = pytest.mark.parametrize("make", [sam_of, bsam_of])


@both
def test_a_block_that_fails_leaves_weights_and_gradients(make: Any) -> None:
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    opt = make(weight)

    def fail() -> None:
        with block_of(opt):
            weight.square().sum().backward()
            opt.perturb()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert torch.equal(weight.detach(), torch.tensor([3.0, 4.0]))
    assert weight.grad is None
    opt.step()
    assert weight not in opt.state or opt.state[weight].get("step", 0) == 0


@both
def test_a_block_without_its_second_pass_is_refused(make: Any) -> None:
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    opt = make(weight)
    with pytest.raises(RuntimeError, match="ended without a second pass"), block_of(opt):
        weight.square().sum().backward()
    assert torch.equal(weight.detach(), torch.tensor([3.0, 4.0]))


@both
def test_perturb_is_for_once_in_a_block(make: Any) -> None:
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    opt = make(weight)
    with pytest.raises(RuntimeError, match="outside"):
        opt.perturb()
    with block_of(opt):
        weight.square().sum().backward()
        opt.perturb()
        with pytest.raises(RuntimeError, match="twice in a block"):
            opt.perturb()
        weight.square().sum().backward()
    assert torch.equal(weight.detach(), torch.tensor([3.0, 4.0]))


@both
def test_a_state_is_not_saved_while_the_weights_are_moved(make: Any) -> None:
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    opt = make(weight)
    with block_of(opt):
        weight.square().sum().backward()
        opt.perturb()
        with pytest.raises(RuntimeError, match="the weights are moved"):
            opt.state_dict()
        weight.square().sum().backward()
    opt.step()
    assert opt.state_dict()["state"][0]["step"] == 1


@both
def test_a_nan_in_the_first_pass_drops_the_step(make: Any) -> None:
    weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    opt = make(weight)
    with block_of(opt):
        (weight.square().sum() * float("nan")).backward()
        opt.perturb()
        weight.square().sum().backward()
    opt.step()
    assert torch.equal(weight.detach(), torch.tensor([3.0, 4.0]))
    assert opt.skipped_steps == 1


def test_sam_refuses_a_step_with_gradients_of_one_pass() -> None:
    weight = nn.Parameter(torch.ones(2))
    opt = SAM([weight], lr=0.1)
    weight.square().sum().backward()
    with pytest.raises(RuntimeError, match="step.. without a second pass"):
        opt.step()
    with pytest.raises(RuntimeError, match="sampled_params.. is not for SAM"):
        opt.sampled_params()
    with pytest.raises(TypeError, match="SAM learns a point and no variance"):
        opt.kl()


def test_bsam_takes_its_second_gradient_at_the_perturbed_mean() -> None:
    weight = nn.Parameter(torch.tensor([2.0, -1.0]))
    opt = BSAM(
        [weight], lr=0.1, ess=10.0, rho=0.3, hess_init=0.5, weight_decay=0.1, damping=0.2, betas=(0.8, 0.9), seed=0
    )
    seen = []
    with opt.sampled_params(train=True):
        seen.append(weight.detach().clone())
        (0.5 * weight.square().sum()).backward()
        opt.perturb()
        seen.append(weight.detach().clone())
        (0.5 * weight.square().sum()).backward()
    mean, s = torch.tensor([2.0, -1.0]), 0.6
    g = seen[0]  # the gradient of this loss is the weight
    torch.testing.assert_close(seen[1], mean + 0.3 * g / s)
    opt.step()
    momentum = 0.2 * (seen[1] + 0.1 * mean)
    s_next = 0.9 * s + 0.1 * (s**0.5 * g.abs() + 0.1 + 0.2)
    torch.testing.assert_close(opt.state[weight]["hess"] + 0.1, s_next)
    torch.testing.assert_close(weight.detach(), mean - 0.1 * momentum / s_next)


def test_bsam_refuses_gradients_from_before_the_block_and_modes() -> None:
    weight = nn.Parameter(torch.ones(2))
    opt = BSAM([weight], lr=0.1, ess=10.0)
    with opt.sampled_params():
        weight.square().sum().backward()

    def mixed() -> None:
        with opt.sampled_params(train=True):
            weight.square().sum().backward()
            opt.perturb()

    with pytest.raises(RuntimeError, match="gradients that were taken before the block"):
        mixed()
    with pytest.raises(RuntimeError, match="train.. is not for BSAM"):
        opt.train()
