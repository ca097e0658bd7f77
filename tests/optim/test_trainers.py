"""What training frameworks do to an optimizer: a closure after `train()`, groups with their own weight decay."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from varlearn import IVON

SETTINGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.9), "seed": 3}


def fresh(**settings: Any) -> tuple[nn.Parameter, IVON]:
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    return weight, IVON([weight], **(SETTINGS | settings))


def micro_batch(weight: Tensor, index: int) -> Tensor:
    return ((weight - index) ** 2).sum() / 2


def test_a_closure_after_train_is_the_last_micro_batch() -> None:
    weight, opt = fresh()
    seen = []

    def closure() -> Tensor:
        seen.append(weight.detach().clone())
        loss = micro_batch(weight, 1)
        loss.backward()
        return loss

    opt.train()
    micro_batch(weight, 0).backward()
    opt.eval()  # a checkpoint is made here
    returned = opt.step(closure)
    assert len(seen) == 1
    assert not returned.requires_grad
    plain, expected = fresh()
    with expected.sampled_params(train=True):
        assert torch.equal(plain, seen[0])
        (micro_batch(plain, 0) + micro_batch(plain, 1)).backward()
    expected.step()
    torch.testing.assert_close(weight, plain)
    torch.testing.assert_close(opt.state[weight]["hess"], expected.state[plain]["hess"])
    assert not opt.is_sampled


def test_a_closure_that_fails_after_train_leaves_the_mean() -> None:
    weight, opt = fresh()
    opt.train()

    def closure() -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        opt.step(closure)
    assert weight.tolist() == [1.0, -2.0]
    assert not opt.is_sampled


def groups(*weight_decays: float) -> list[dict[str, Any]]:
    return [{"params": [nn.Parameter(torch.zeros(1))], "weight_decay": value} for value in weight_decays]


def test_groups_that_make_the_prior_flat_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"weight_decay=0.001 is 0 in every parameter group.*weight_decay=0.0 to IVON"):
        IVON(groups(0.0, 0.0), weight_decay=1e-3, **SETTINGS)


def test_groups_that_are_meant_are_not_warned_of() -> None:
    IVON(groups(0.0, 0.0), weight_decay=0.0, **SETTINGS)
    IVON(groups(0.01, 0.0), weight_decay=1e-3, **SETTINGS)
    IVON(groups(0.0), **SETTINGS)
