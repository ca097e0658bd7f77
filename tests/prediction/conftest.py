from collections.abc import Callable

import pytest
import torch
from torch import nn

from varlearn.posterior import DiagGaussian

State = tuple[dict[str, bytes], list[bool]]


@pytest.fixture
def state_of() -> Callable[[nn.Module], State]:
    """From a model to the bits of its tensors and its train flags."""

    def read(model: nn.Module) -> State:
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return (
            {name: bytes(value.detach().flatten().view(torch.uint8).tolist()) for name, value in tensors.items()},
            [module.training for module in model.modules()],
        )

    return read


@pytest.fixture
def around() -> Callable[..., DiagGaussian]:
    """From a model to the Gaussian around its weights with one standard deviation for all."""

    def make(model: nn.Module, std: float = 0.1) -> DiagGaussian:
        params = {name: value.detach().clone() for name, value in model.named_parameters()}
        return DiagGaussian(params, {name: torch.full_like(value, std**-2) for name, value in params.items()}, ess=1.0)

    return make
