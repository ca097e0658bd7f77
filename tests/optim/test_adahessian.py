"""AdaHessian: its diagonal compared with dense Hessians, micro-batches, and what it refuses."""

import pytest
import torch
from torch import nn

from tests.optim.contract import TinyNet, mse
from varlearn.optim import AdaHessian
from varlearn.optim.curvature import hutchinson


def test_backward_is_loss_backward_and_hutchinsons_estimate() -> None:
    model, twin = TinyNet(), TinyNet()
    opt = AdaHessian(model.parameters(), lr=0.05, seed=3)
    opt.backward(mse(model))
    mse(twin).backward()
    for param, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(param.grad, other.grad)
    assert all(param.grad.grad_fn is None for param in model.parameters() if param.grad is not None)


def test_on_a_diagonal_quadratic_each_step_is_newtons() -> None:
    scales = torch.tensor([0.01, 1.0, 100.0])
    weight = nn.Parameter(torch.tensor([3.0, -2.0, 1.0]))
    opt = AdaHessian([weight], lr=1.0, betas=(0.0, 0.9), eps=0.0)
    opt.backward((0.5 * scales * weight.square()).sum())
    opt.step()
    torch.testing.assert_close(weight.detach(), torch.zeros(3), rtol=0.0, atol=1e-6)


def test_micro_batches_add_up_to_the_batch() -> None:
    scales = torch.tensor([1.0, 5.0])
    runs = []
    for parts in (1, 4):
        weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        opt = AdaHessian([weight], lr=0.1)
        for _ in range(parts):
            opt.backward((0.5 * scales * weight.square()).sum() / parts)
        opt.step()
        runs.append((weight.detach(), opt.state[weight]["exp_hessian_diag_sq"]))
    torch.testing.assert_close(runs[0], runs[1])


def test_weights_that_are_added_in_the_loss_have_gradients_of_their_own() -> None:
    """Autograd returns one tensor for both, and an expanded one for a sum."""
    ours, theirs = ([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))] for _ in range(2))
    opt = AdaHessian(ours, lr=0.1)
    for loss in (lambda p: (p[0] + p[1]).square().sum(), lambda p: 0.5 * (p[0] + p[1]).sum()) * 2:
        opt.backward(loss(ours))
        loss(theirs).backward()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    nn.utils.clip_grad_value_(ours, 1.0)
    assert ours[0].grad is not None
    ours[0].grad.zero_()
    torch.testing.assert_close(ours[1].grad, torch.ones(3))


def test_the_signs_differ_from_call_to_call_and_step_to_step() -> None:
    mixed = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    weight = nn.Parameter(torch.ones(2))
    opt = AdaHessian([weight], lr=0.0, seed=0)
    seen = set()
    for _ in range(20):
        opt.zero_grad()
        opt.backward(0.5 * weight @ mixed @ weight)
        seen.add(tuple(opt._diagonals[weight].tolist()))
        opt.step()
    assert seen == {(3.0, 3.0), (1.0, 1.0)}  # z1 z2 is 1 or -1


def test_a_diagonal_may_be_handed_in() -> None:
    weight = nn.Parameter(torch.ones(2))
    opt = AdaHessian([weight], lr=0.1)
    loss = weight.pow(3).sum()
    diagonal = hutchinson(loss, [weight])
    loss.backward()
    opt.hand_in_hess(diagonal)
    opt.step()
    torch.testing.assert_close(opt.state[weight]["exp_hessian_diag_sq"], torch.full((2,), 0.001 * 36.0))
    with pytest.raises(ValueError, match="not a parameter of this optimizer"):
        opt.hand_in_hess({torch.ones(2): torch.ones(2)})
    with pytest.raises(ValueError, match=r"D of shape \(3,\) for a parameter of shape \(2,\)"):
        opt.hand_in_hess({weight: torch.ones(3)})


def test_a_step_without_the_diagonal_is_refused_and_clearing_forgets_it() -> None:
    weight = nn.Parameter(torch.ones(2))
    opt = AdaHessian([weight], lr=0.1)
    weight.square().sum().backward()
    with pytest.raises(RuntimeError, match="without the Hessian's diagonal; call optimizer.backward"):
        opt.step()
    opt.zero_grad()
    opt.backward(weight.square().sum())
    opt.zero_grad()
    weight.square().sum().backward()
    with pytest.raises(RuntimeError, match="without the Hessian's diagonal"):
        opt.step()


def test_trainers_modes_do_nothing_and_the_global_generator_is_not_read() -> None:
    weight = nn.Parameter(torch.ones(2))
    opt = AdaHessian([weight], lr=0.1, seed=0)
    state = torch.get_rng_state()
    opt.train()
    opt.backward(weight.square().sum())
    opt.step()
    opt.eval()
    assert torch.equal(torch.get_rng_state(), state)
    assert not opt.is_sampled
