"""The Gaussian whose covariance is diagonal in a Kronecker basis: what the Laplace approximation of a layer gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from varlearn.posterior.around_mean import AroundMean
from varlearn.posterior.draw import normals_by_name
from varlearn.posterior.origin import Origin
from varlearn.posterior.tensors import cast, check_means, check_names, checked_temperature, size_of
from varlearn.types import Params, Seed


@dataclass(frozen=True, eq=False, repr=False)
class KroneckerGaussian(AroundMean):
    """q(theta): each tensor, as a matrix (R, C), is M + sqrt(T) U (S * Z) V^T with standard normal Z.

    U and V are orthogonal. With the eigenvalues a of a factor A = V diag(a) V^T and b of B = U diag(b) U^T, the scale
    S = 1 / sqrt(b a^T + precision) belongs to the precision matrix B (x) A + precision I. Tensors are independent.

    Args:
        mean: M, one float tensor of one or two dimensions per random weight. A vector is a matrix of one column.
        left: U, shapes (R, R).
        right: V, shapes (C, C).
        scale: S >= 0, shapes as `mean`.
        fixed: frozen parameters and buffers that go with the weights. None leaves the model's own in place.
        tied: further names of weights that have several, with the name used here.
        temperature: T >= 0, the factor of the covariance; see `DiagGaussian`.
        origin: the training that it comes from.

    >>> one = torch.ones(1, 1)
    >>> turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]])
    >>> q = KroneckerGaussian({"w": torch.zeros(2, 1)}, {"w": turn}, {"w": one}, {"w": torch.tensor([[5.0], [0.0]])})
    >>> q.std["w"].flatten()
    tensor([3., 4.])
    """

    mean: Params
    left: Params
    right: Params
    scale: Params
    fixed: Mapping[str, Tensor] | None = None
    tied: Mapping[str, str] = field(default_factory=dict)
    temperature: float = 1.0
    origin: Origin = Origin()  # noqa: RUF009

    def __post_init__(self) -> None:
        check_means(self.mean)
        checked_temperature(self.temperature)
        check_names("scale", self.scale, self.mean)
        for what, factors, dimension in (("left", self.left, 0), ("right", self.right, 1)):
            check_names(what, {name: None for name in factors}, self.mean)
            for name, mean in self.mean.items():
                size = _matrix(mean).shape[dimension]
                if mean.dim() > 2 or factors[name].shape != (size, size):
                    raise ValueError(
                        f"{what}[{name!r}] has shape {tuple(factors[name].shape)} and must be ({size}, {size}) for a "
                        f"tensor of shape {tuple(mean.shape)}; give matrices and vectors with one factor for each side"
                    )
        for name, scale in self.scale.items():
            if not ((scale >= 0) & scale.isfinite()).all():
                raise ValueError(f"scale[{name!r}] has negative or non-finite entries; it is a standard deviation")

    def __repr__(self) -> str:
        return f"KroneckerGaussian over {size_of(self.mean)}"

    @property
    def std(self) -> Params:
        """Square root of the diagonal of the covariance: sqrt(T U^2 S^2 V^2^T), with squares of entries."""
        root = math.sqrt(self.temperature)
        return {
            name: (self.left[name].square() @ _matrix(scale).square() @ self.right[name].square().T)
            .sqrt()
            .mul(root)
            .view(scale.shape)
            for name, scale in self.scale.items()
        }

    def perturbation(self, seed: Seed = 0, index: int = 0) -> Params:
        """sqrt(T) U (S * Z) V^T, the part of `sample` that is random."""
        root, noise = math.sqrt(self.temperature), normals_by_name(self.mean, seed, index)
        return {
            name: (self.left[name] @ (_matrix(scale) * _matrix(noise[name])).mul_(root) @ self.right[name].T).view(
                scale.shape
            )
            for name, scale in self.scale.items()
        }

    def log_prob(self, params: Params) -> Tensor:
        """log q(theta) in float64; needs scale > 0 and a temperature > 0.

        >>> one = torch.ones(1, 1)
        >>> q = KroneckerGaussian({"w": one}, {"w": one}, {"w": one}, {"w": 2 * one})
        >>> round(q.log_prob({"w": one}).item(), 6)  # -log(2 pi * 4) / 2
        -1.612086
        """
        check_names("params", params, self.mean)
        total = torch.zeros((), dtype=torch.float64)
        for name, mean in self.mean.items():
            scale = math.sqrt(self.temperature) * _matrix(self.scale[name]).double()
            if not bool((scale > 0).all()):
                raise ValueError(f"temperature or scale[{name!r}] has zeros, so there is no density; use larger ones")
            offset = _matrix(params[name]).double() - _matrix(mean).double()
            turned = self.left[name].double().T @ offset @ self.right[name].double()
            terms = (turned / scale).square() + 2.0 * scale.log() + math.log(2.0 * math.pi)
            total += -0.5 * terms.sum().cpu()
        return total

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> KroneckerGaussian:
        """The same posterior on another device or in another float dtype."""
        return replace(
            self,
            mean=cast(self.mean, device, dtype),
            left=cast(self.left, device, dtype),
            right=cast(self.right, device, dtype),
            scale=cast(self.scale, device, dtype),
            fixed=None if self.fixed is None else cast(self.fixed, device, dtype),
        )


def _matrix(value: Tensor) -> Tensor:
    return value if value.dim() == 2 else value.reshape(-1, 1)
