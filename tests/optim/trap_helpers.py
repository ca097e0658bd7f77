"""What the tests of the 24 traps share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from varlearn import IVON

Loss = Callable[[], Tensor]


def parameter(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Parameter:
    generator = torch.Generator().manual_seed(seed)
    return nn.Parameter(torch.randn(*shape, generator=generator).to(dtype))


def ivon(params: Any, **options: Any) -> IVON:
    return IVON(params, **{"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.9), "weight_decay": 0.01, "seed": 0, **options})


def block(opt: IVON, loss: Loss) -> None:
    with opt.sampled_params(train=True):
        opt.zero_grad()
        loss().backward()


def state_of(opt: IVON, *params: Tensor) -> list[Tensor]:
    """Copies of all that a step may change."""
    return [
        value.detach().clone() for p in params for value in (p, *opt.state[p].values()) if isinstance(value, Tensor)
    ]


def assert_same(before: list[Tensor], after: list[Tensor]) -> None:
    assert len(before) == len(after)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
