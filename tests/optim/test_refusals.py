"""What is refused, with value, rule and cure; and that a refused call leaves everything as it was."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from tests.optim.contract import TinyNet, assert_same, in_block, mse, snapshot
from tests.optim.undisturbed import KWARGS, fresh, unchanged
from varlearn import IVON

# The constructor and the groups


def test_messages_say_value_rule_and_cure() -> None:
    weight = [nn.Parameter(torch.ones(1))]
    for kwargs, message in (
        ({"ess": 0.0}, "ess=0.0 must be > 0 and finite; use the number of training examples"),
        ({"betas": (1.0, 0.9)}, "beta1=1.0 must be >= 0 and < 1; 0.9 is usual"),
        ({"beta2": 1.0}, "beta2=1.0 must be >= 0 and < 1; 1 - 1e-5 is the paper's"),
        ({"hess_approx": "fisher"}, "hess_approx='fisher' must be one of "),
        ({"mc_samples": 2.5}, "mc_samples=2.5 must be an integer >= 1; "),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            IVON(weight, **{**KWARGS, **kwargs})
        assert str(caught.value).startswith(message)


def test_the_internal_word_for_a_prior_given_as_tensors_is_refused() -> None:
    with pytest.raises((ValueError, TypeError), match="prior_mean"):
        IVON([nn.Parameter(torch.ones(1))], prior_mean="given", **KWARGS)  # type: ignore[arg-type]


def test_both_paths_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="foreach=True and fused=True"):
        IVON([nn.Parameter(torch.ones(1))], foreach=True, fused=True, **KWARGS)


@pytest.mark.parametrize("as_list", [True, False], ids=["list", "single"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_parameters_that_are_not_real_are_refused(dtype: torch.dtype, as_list: bool) -> None:
    param = nn.Parameter(torch.ones(2, dtype=dtype))
    group: dict[str, Any] = {"params": [param] if as_list else param}
    with pytest.raises(ValueError, match=f"{dtype}.*another optimizer"):
        IVON([group], **KWARGS)
    _, opt = fresh()
    with unchanged(opt), pytest.raises(ValueError, match=str(dtype)):
        opt.add_param_group(group)


def test_parameters_in_two_groups_are_refused() -> None:
    weight = nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match="more than one parameter group"):
        IVON([{"params": [weight]}, {"params": [weight]}], **KWARGS)
    model, opt = fresh()
    with unchanged(opt), pytest.raises(ValueError, match="more than one parameter group"):
        opt.add_param_group({"params": [model.scale]})


def test_no_parameters_and_no_tensors_are_refused() -> None:
    with pytest.raises(ValueError, match="empty parameter list"):
        IVON([], **KWARGS)
    with pytest.raises(TypeError):
        IVON(nn.Parameter(torch.ones(1)), **KWARGS)
    with pytest.raises(TypeError):
        IVON([1.0], **KWARGS)
    with pytest.raises(ValueError, match="non-leaf"):
        IVON([nn.Parameter(torch.ones(1)) * 2], **KWARGS)


@pytest.mark.parametrize(
    ("prior_mean", "message"),
    [
        ([torch.ones(3)], r"prior_mean\[0\] has shape \(3,\)"),
        ([torch.full((2,), math.nan)], r"prior_mean\[0\] is not finite"),
        ([], "0 tensors for 1 parameters"),
        ({"x": torch.ones(2)}, "named parameters"),
    ],
    ids=["shape", "nan", "count", "names"],
)
def test_a_prior_mean_that_does_not_fit_is_refused(prior_mean: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IVON([nn.Parameter(torch.ones(2))], prior_mean=prior_mean, **KWARGS)
    _, opt = fresh()
    with unchanged(opt), pytest.raises(ValueError, match=message):
        opt.add_param_group({"params": [nn.Parameter(torch.ones(2))], "prior_mean": prior_mean})


# Samples and steps out of order


def test_step_with_gradients_but_no_sample() -> None:
    for steps in (0, 1):
        model, opt = fresh(steps)
        mse(model).backward()
        with unchanged(opt), pytest.raises(RuntimeError, match=r"without a sample.*sampled_params\(train=True\)"):
            opt.step()


def test_backward_after_the_block() -> None:
    weight = nn.Parameter(torch.ones(3))
    opt = IVON([weight], **KWARGS)
    with opt.sampled_params(train=True):
        loss = (weight * torch.arange(3.0)).sum()
    loss.backward()
    with unchanged(opt), pytest.raises(RuntimeError, match="outside the sampling block.*zero_grad"):
        opt.step()


def test_zero_grad_and_backward_after_the_block() -> None:
    """The order of an ordinary loop: forward in the block, then zero_grad, backward, step."""
    weight = nn.Parameter(torch.ones(3))
    opt = IVON([weight], **KWARGS)
    with opt.sampled_params(train=True):
        loss = (weight * torch.arange(3.0)).sum()
    opt.zero_grad()
    loss.backward()
    with unchanged(opt), pytest.raises(RuntimeError, match="outside the sampling block"):
        opt.step()


@pytest.mark.parametrize("zero_grad", [False, True], ids=["kept", "zero_grad between"])
def test_a_second_backward_after_the_block(zero_grad: bool) -> None:
    model, opt = fresh()
    in_block(opt, lambda: mse(model))
    if zero_grad:
        opt.zero_grad()
    mse(model).backward()
    with unchanged(opt), pytest.raises(RuntimeError, match="outside the sampling block"):
        opt.step()


@pytest.mark.parametrize("steps", [0, 1], ids=["before the first sample", "later"])
def test_backward_before_the_block(steps: int) -> None:
    model, opt = fresh(steps)
    mse(model).backward()
    with opt.sampled_params(train=True):
        mse(model).backward()
    with unchanged(opt), pytest.raises(RuntimeError, match="outside the sampling block"):
        opt.step()


def test_backward_in_an_evaluation_block() -> None:
    model, opt = fresh()
    with opt.sampled_params():
        mse(model).backward()
    with unchanged(opt), pytest.raises(RuntimeError, match="without a sample"):
        opt.step()


def test_backward_in_an_evaluation_block_inside_a_training_block() -> None:
    """The gradient is one at the evaluation sample; the noise of the training sample does not belong to it."""
    model, opt = fresh()
    with opt.sampled_params(train=True), opt.sampled_params():
        mse(model).backward()
    with unchanged(opt), pytest.raises(RuntimeError, match="outside the sampling block"):
        opt.step()


def test_a_gradient_that_was_dropped_is_not_held_against_the_next_step() -> None:
    for drop in ("optimizer", "model", "model in place", "by hand"):
        model, opt = fresh()
        mse(model).backward()
        if drop == "optimizer":
            opt.zero_grad()
        elif drop == "by hand":
            for param in model.parameters():
                param.grad = None
        else:
            model.zero_grad(set_to_none=drop == "model")
        with opt.sampled_params(train=True):
            mse(model).backward()
        opt.step()
        assert opt.state[model.scale]["step"] == 2, drop


def test_a_training_block_inside_a_training_block() -> None:
    model, opt = fresh()
    with unchanged(opt), opt.sampled_params(train=True):
        inside = model.scale.detach().clone()
        with pytest.raises(RuntimeError, match="close the first block"), opt.sampled_params(train=True):
            pass
        assert torch.equal(model.scale, inside)
        mse(model).backward()
    opt.step()
    assert opt.state[model.scale]["step"] == 2


def test_overlapping_training_blocks() -> None:
    _, opt = fresh()
    with unchanged(opt):
        first = opt.sampled_params(train=True)
        first.__enter__()
        with pytest.raises(RuntimeError, match="close the first block"):
            opt.sampled_params(train=True).__enter__()
        first.__exit__(None, None, None)


def test_blocks_and_modes_are_not_mixed() -> None:
    model, opt = fresh()
    with unchanged(opt):
        opt.train()
        with pytest.raises(RuntimeError, match="not both"), opt.sampled_params(train=True):
            pass
        opt.eval()
        with opt.sampled_params(train=True), pytest.raises(RuntimeError, match="already in"):
            opt.train()
    in_block(opt, lambda: mse(model))
    with unchanged(opt), pytest.raises(RuntimeError, match="not both"):
        opt.train()
    opt.step()
    assert opt.state[model.scale]["step"] == 2


def test_a_block_after_a_mode_that_has_gradients_is_refused() -> None:
    """Their gradients are of two samples and would add up under the noise of one."""
    model, opt = fresh()
    opt.train()
    mse(model).backward()
    opt.eval()
    with unchanged(opt), pytest.raises(RuntimeError, match="not both"):  # noqa: PT012
        with opt.sampled_params(train=True):
            mse(model).backward()
        opt.step()


@pytest.mark.parametrize("train", [False, True], ids=["evaluation", "training"])
def test_step_inside_a_block(train: bool) -> None:
    model, opt = fresh()
    with unchanged(opt), opt.sampled_params(train=train):
        mse(model).backward()
        with pytest.raises(RuntimeError, match="call it after the block"):
            opt.step()


def test_a_closure_while_blocks_wait() -> None:
    model, opt = fresh()
    in_block(opt, lambda: mse(model))
    with unchanged(opt), pytest.raises(RuntimeError, match=r"1 block\(s\) are waiting"):
        opt.step(lambda: mse(model))
    opt.step()
    assert opt.state[model.scale]["step"] == 2


def test_a_bad_group_refuses_the_sample_before_any_state_is_made() -> None:
    model = TinyNet()
    opt = IVON([{"params": model.first.parameters()}, {"params": model.second.parameters()}], **KWARGS)
    opt.param_groups[1]["ess"] = -1.0
    with unchanged(opt), pytest.raises(ValueError, match="ess"), opt.sampled_params():
        pass


# hhat of the caller


def test_a_handed_in_hess_that_does_not_fit_is_refused() -> None:
    model, opt = fresh()
    with pytest.raises(RuntimeError, match="outside a training block"):
        opt.hand_in_hess({model.scale: torch.ones(())})
    with unchanged(opt), opt.sampled_params(train=True):
        with pytest.raises(ValueError, match=r"shape \(2,\)"):
            opt.hand_in_hess({model.scale: torch.ones(2)})
        with pytest.raises(ValueError, match="not a trainable parameter"):
            opt.hand_in_hess({torch.ones(()): torch.ones(())})


@pytest.mark.parametrize("nonfinite", ["skip", "raise"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("samples", [1, 2])
def test_a_handed_in_hess_that_is_not_finite_is_not_used(value: float, samples: int, nonfinite: str) -> None:
    model, opt = fresh(nonfinite=nonfinite)
    before = snapshot(opt)
    try:
        for _ in range(samples):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                mse(model).backward()
                opt.hand_in_hess({model.scale: torch.tensor(value)})
        opt.step()
    except (ValueError, FloatingPointError):
        assert nonfinite == "raise" or not opt.is_sampled
    after = snapshot(opt)
    assert_same(before["weights"], after["weights"])
    assert_same(before["state"], after["state"])


# Gradients that are not finite


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("nonfinite", ["skip", "raise"])
def test_a_poisoned_sample_never_reaches_the_state(value: float, samples: int, nonfinite: str) -> None:
    model, opt = fresh(nonfinite=nonfinite)
    before = snapshot(opt)
    for index in range(samples):
        in_block(opt, lambda index=index: mse(model) * (value if index == 0 else 1.0))
    if nonfinite == "raise":
        with pytest.raises(FloatingPointError, match="state and weights are unchanged. Lower lr"):
            opt.step()
    else:
        opt.step()
    assert opt.skipped_steps == 1
    after = snapshot(opt)
    assert_same(before["weights"], after["weights"])
    assert_same(before["state"], after["state"])
    in_block(opt, lambda: mse(model))
    opt.step()
    assert opt.state[model.scale]["step"] == 2
