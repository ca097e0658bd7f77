"""Posteriors over few places: one point, and a weighted mixture of other posteriors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from varlearn.posterior.binding import full_state
from varlearn.posterior.draw import uniform
from varlearn.posterior.notebook_table import posterior_table
from varlearn.posterior.tensors import cast, check_means, check_names, checked_temperature, size_of
from varlearn.types import Params, Posterior, Seed


@dataclass(frozen=True, eq=False, repr=False)
class Point:
    """All mass on one setting of the weights: a model without uncertainty, e.g. IVON@mean or a member of an ensemble.

    Args:
        mean: the weights. Tensors are not copied.
        fixed: frozen parameters and buffers that go with them. None leaves the model's own in place.
        tied: further names of weights that have several, with the name used here.

    >>> Point({"w": torch.tensor([2.0])}).sample(seed=7)["w"].item()
    2.0
    """

    mean: Params
    fixed: Mapping[str, Tensor] | None = None
    tied: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_means(self.mean)

    def __repr__(self) -> str:
        return f"Point over {size_of(self.mean)}"

    def _repr_html_(self) -> str:
        return posterior_table(self)

    @property
    def std(self) -> Params:
        """Zeros."""
        return {name: torch.zeros_like(value) for name, value in self.mean.items()}

    def perturbation(self, seed: Seed = 0, index: int = 0) -> Params:
        """Zeros: nothing is random."""
        return self.std

    def sample(self, seed: Seed = 0, index: int = 0) -> Params:
        """A copy of the weights, for any seed."""
        return {name: value.clone() for name, value in self.mean.items()}

    def at_temperature(self, temperature: float) -> Point:
        """The point itself: it has no variance to multiply."""
        checked_temperature(temperature)
        return self

    def at_mean(self) -> Point:
        """The point itself."""
        return self

    def state_dict(self, params: Params | None = None) -> Params:
        """The weights with all that goes with them, as `model.load_state_dict` takes them."""
        return full_state(self.mean if params is None else params, self.fixed, self.tied)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Point:
        """The same point on another device or in another float dtype."""
        fixed = None if self.fixed is None else cast(self.fixed, device, dtype)
        return Point(cast(self.mean, device, dtype), fixed, self.tied)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Mixture:
    """sum_k w_k q_k: Multi-IVON is a mixture of Gaussians, a deep ensemble a mixture of points.

    A mixture inside a mixture is dissolved into its components, with the products of the weights.

    Args:
        components: posteriors over the same named tensors.
        weights: w_k > 0 in any scale, divided by their sum; equal where None.

    >>> ensemble = Mixture((Point({"w": torch.tensor([1.0])}), Point({"w": torch.tensor([5.0])})), weights=(3.0, 1.0))
    >>> ensemble.mean["w"].item(), round(ensemble.std["w"].item(), 6)  # 2 and sqrt(.75 * 1 + .25 * 9)
    (2.0, 1.732051)
    """

    components: tuple[Posterior, ...]
    weights: tuple[float, ...]

    def __init__(self, components: Sequence[Posterior], weights: Sequence[float] | None = None):
        weights = [1.0] * len(components) if weights is None else [float(weight) for weight in weights]
        if not components:
            raise ValueError("components=() is empty; a mixture needs at least one posterior")
        if len(weights) != len(components):
            raise ValueError(f"{len(weights)} weights for {len(components)} components; give one weight per component")
        for weight in weights:
            if not 0 < weight < math.inf:
                raise ValueError(f"weight={weight} must be > 0 and finite; leave out components without weight")
        flat = _dissolve(components, [weight / math.fsum(weights) for weight in weights])
        for number, (_, component) in enumerate(flat):
            _check_same_weights(number, component, flat[0][1])
        object.__setattr__(self, "components", tuple(component for _, component in flat))
        object.__setattr__(self, "weights", tuple(weight for weight, _ in flat))

    def __repr__(self) -> str:
        kinds = ", ".join(sorted({type(component).__name__ for component in self.components}))
        return f"Mixture of {len(self.components)} ({kinds}) over {size_of(self.components[0].mean)}"

    def _repr_html_(self) -> str:
        return posterior_table(self)

    @property
    def mean(self) -> Params:
        """sum_k w_k m_k."""
        means = [component.mean for component in self.components]
        return {name: _weighted_sum(self.weights, [mean[name] for mean in means]) for name in means[0]}

    @property
    def std(self) -> Params:
        """Square root of the variance within the components plus that between their means."""
        mean = self.mean
        parts = [(component.mean, component.std) for component in self.components]
        return {
            name: _weighted_sum(self.weights, [s[name] ** 2 + (m[name] - mean[name]) ** 2 for m, s in parts]).sqrt()
            for name in mean
        }

    @property
    def fixed(self) -> None:
        """None: each component has its own fixed tensors."""
        return None

    def sample(self, seed: Seed = 0, index: int = 0) -> Params:
        """A sample of a component that is drawn with probability w_k."""
        return self.components[self.choose(seed, index)].sample(seed, index)

    def choose(self, seed: Seed = 0, index: int = 0) -> int:
        """The component of sample `index`: k with probability w_k.

        >>> Mixture([Point({"w": torch.zeros(1)})]).choose(seed=5)
        0
        """
        left = uniform(seed, index)
        for number, weight in enumerate(self.weights):
            left -= weight
            if left < 0:
                return number
        return len(self.weights) - 1

    def log_prob(self, params: Params) -> Tensor:
        """log sum_k w_k q_k(theta), where every component has a density."""
        terms = []
        for number, (weight, component) in enumerate(zip(self.weights, self.components, strict=True)):
            log_prob = getattr(component, "log_prob", None)
            if log_prob is None:
                raise TypeError(
                    f"component {number} is a {type(component).__name__}, which has no density; "
                    "log_prob needs a mixture of Gaussians"
                )
            terms.append(log_prob(params) + math.log(weight))
        return torch.stack(terms).logsumexp(0)

    def at_temperature(self, temperature: float) -> Mixture:
        """The mixture of its components, each with this temperature."""
        tempered = [component.at_temperature(temperature) for component in self.components]  # type: ignore[attr-defined]
        return Mixture(tempered, self.weights)

    def at_mean(self) -> Mixture:
        """The means of the components, with the same weights: an ensemble of points."""
        return Mixture([component.at_mean() for component in self.components], self.weights)  # type: ignore[attr-defined]

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Mixture:
        """The same mixture on another device or in another float dtype."""
        return Mixture([component.to(device, dtype) for component in self.components], self.weights)


def components(posterior: Posterior) -> list[tuple[float, Posterior]]:
    """The weighted components of a mixture; any other posterior is its only one.

    >>> point = Point({"w": torch.zeros(1)})
    >>> [weight for weight, _ in components(Mixture((point, point, point, point)))], len(components(point))
    ([0.25, 0.25, 0.25, 0.25], 1)
    """
    if isinstance(posterior, Mixture):
        return list(zip(posterior.weights, posterior.components, strict=True))
    return [(1.0, posterior)]


def _check_same_weights(number: int, component: Posterior, first: Posterior) -> None:
    try:
        check_names(f"component {number}", component.mean, first.mean)
    except ValueError as error:
        raise ValueError(
            f"component {number}, a {type(component).__name__}, cannot be mixed with component 0, a "
            f"{type(first).__name__}: {str(error).rpartition(';')[0]}; mix posteriors of one network in which the same "
            "weights are random"
        ) from None


def _dissolve(parts: Sequence[Posterior], weights: Sequence[float]) -> list[tuple[float, Posterior]]:
    return [
        (outer * inner, component)
        for outer, part in zip(weights, parts, strict=True)
        for inner, component in components(part)
    ]


def _weighted_sum(weights: Sequence[float], values: Sequence[Tensor]) -> Tensor:
    total = torch.zeros_like(values[0])
    for weight, value in zip(weights, values, strict=True):
        total.add_(value, alpha=weight)
    return total
