"""The values that travel between the stages, and the two protocols that decouple them.

A stage asks for these names only, so a user's own posterior or sampler needs no base class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

Params = dict[str, Tensor]
"""Named tensors, in the names of `model.named_parameters()` (a tied weight has its first name only)."""

Forward = Callable[[Any], Any]
"""One random predictor: from the inputs of a batch to the model's outputs for it."""

Seed = int | torch.Generator
"""An integer makes a sample a function of (seed, index); a generator is a stream that the sample consumes."""


@runtime_checkable
class Posterior(Protocol):
    """A distribution q(theta) over the named weights of a model."""

    @property
    def mean(self) -> Params:
        """m = E_q[theta], one tensor per random weight."""
        ...

    @property
    def std(self) -> Params:
        """sigma, the square root of each weight's marginal variance; shapes as `mean`."""
        ...

    @property
    def fixed(self) -> Mapping[str, Tensor] | None:
        """Frozen parameters and buffers that go with the weights; None leaves the model's own in place."""
        ...

    def sample(self, seed: Seed = 0, index: int = 0) -> Params:
        """Draw theta ~ q: sample number `index` of `seed`, whatever was drawn before."""
        ...

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Posterior:
        """The same distribution on another device or in another float dtype."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """A source of random predictors: weights, dropout masks, linearized functions.

    Both methods may change the model's weights and train flags; `predict` puts them back when it is done.
    """

    def start(self, model: nn.Module) -> None:
        """Bring the model, which is in eval mode, to the state that all draws share."""
        ...

    def draw(self, model: nn.Module, seed: int, index: int) -> Forward:
        """The predictor number `index` of `seed`, valid until the next draw."""
        ...
