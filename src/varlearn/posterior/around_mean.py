"""What posteriors share whose samples are a mean plus noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from varlearn.posterior.binding import full_state
from varlearn.posterior.discrete import Point
from varlearn.posterior.notebook_table import posterior_table
from varlearn.types import Params, Seed

Q = TypeVar("Q", bound="AroundMean")


class AroundMean(ABC):
    """A posterior whose samples are its mean plus a perturbation. Subclasses are dataclasses with these attributes.

    Attributes:
        mean: m, one float tensor per random weight.
        fixed: frozen parameters and buffers that go with the weights. None leaves the model's own in place.
        tied: further names of weights that have several, with the name used here.
        temperature: T >= 0, the factor of the covariance.
    """

    mean: Params
    fixed: Mapping[str, Tensor] | None
    tied: Mapping[str, str]
    temperature: float

    @property
    @abstractmethod
    def std(self) -> Params:
        """sigma, the square root of each weight's marginal variance."""

    @abstractmethod
    def perturbation(self, seed: Seed = 0, index: int = 0) -> Params:
        """The part of `sample` that is random, in float32 or better."""

    @abstractmethod
    def to(self: Q, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Q:
        """The same posterior on another device or in another float dtype."""

    def sample(self, seed: Seed = 0, index: int = 0) -> Params:
        """The mean plus the perturbation, in the dtype of `mean`.

        Args:
            seed: an integer; the sample is then a function of (seed, index). Or a generator, which is consumed.
            index: number of the sample; without meaning for a generator.

        >>> from varlearn.posterior import DiagGaussian
        >>> q = DiagGaussian({"w": torch.zeros(3)}, {"w": torch.ones(3)}, ess=10.0)
        >>> torch.equal(q.sample(seed=1, index=5)["w"], q.sample(seed=1, index=5)["w"])
        True
        >>> torch.equal(q.sample(seed=1, index=5)["w"], q.sample(seed=1, index=6)["w"])
        False
        """
        noise = self.perturbation(seed, index)
        return {name: noise[name].add_(mean).to(mean.dtype) for name, mean in self.mean.items()}

    def at_temperature(self: Q, temperature: float) -> Q:
        """The same posterior with another temperature: 0 is the mean, 1 the posterior as it was trained.

        >>> from varlearn.posterior import DiagGaussian
        >>> q = DiagGaussian({"w": torch.ones(1)}, {"w": torch.ones(1)}, ess=100.0)
        >>> q.at_temperature(4.0).std["w"].item(), q.at_temperature(0.0).sample(seed=3)["w"].item()
        (0.20000000298023224, 1.0)
        """
        return replace(self, temperature=temperature)  # type: ignore[type-var]

    def at_mean(self) -> Point:
        """The mean as a `Point`, with the same fixed tensors: "IVON@mean".

        >>> from varlearn.posterior import DiagGaussian
        >>> q = DiagGaussian({"w": torch.ones(1)}, {"w": torch.ones(1)}, ess=1.0)
        >>> q.at_mean().sample(seed=3)["w"].item()
        1.0
        """
        return Point(self.mean, fixed=self.fixed, tied=self.tied)

    def state_dict(self, params: Params | None = None) -> Params:
        """The mean (or the given sample) with all that goes with it, as `model.load_state_dict` takes it.

        >>> from varlearn.posterior import DiagGaussian
        >>> q = DiagGaussian({"w": torch.ones(1)}, {"w": torch.ones(1)}, ess=1.0, fixed={"b": torch.zeros(1)})
        >>> sorted(q.state_dict())
        ['b', 'w']
        """
        return full_state(self.mean if params is None else params, self.fixed, self.tied)

    def _repr_html_(self) -> str:
        return posterior_table(self)
