"""The Gaussian with a diagonal plus a low-rank covariance: what SWAG collects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from varlearn.posterior.around_mean import AroundMean
from varlearn.posterior.draw import FACTORS, normals, normals_by_name
from varlearn.posterior.origin import Origin
from varlearn.posterior.tensors import cast, check_means, check_names, checked_temperature, size_of
from varlearn.types import Params, Seed


@dataclass(frozen=True, eq=False, repr=False)
class LowRankGaussian(AroundMean):
    """q(theta) = N(m, T (diag(var) / 2 + D D^T / (2 (K - 1)))) with D the K latest deviations from the mean.

    At T = 1 a sample is m + sqrt(var / 2) z1 + D z2 / sqrt(2 (K - 1)) with z1 of the shape of the weights and one z2 in
    R^K shared by all tensors, which is what correlates them.

    Args:
        mean: m, one float tensor per random weight.
        var: the diagonal variance >= 0, shapes as `mean`.
        deviations: the columns of D by name, shapes (K, *mean.shape) with K >= 2.
        fixed: frozen parameters and buffers that go with the weights. None leaves the model's own in place.
        tied: further names of weights that have several, with the name used here.
        temperature: T >= 0, the factor of the covariance; see `DiagGaussian`.
        origin: the training that it comes from.

    >>> q = LowRankGaussian({"w": torch.zeros(1)}, {"w": torch.tensor([1.0])}, {"w": torch.tensor([[1.0], [2.0]])})
    >>> round(q.std["w"].item(), 6)  # sqrt(1 / 2 + (1 + 4) / 2)
    1.732051
    """

    mean: Params
    var: Params
    deviations: Params
    fixed: Mapping[str, Tensor] | None = None
    tied: Mapping[str, str] = field(default_factory=dict)
    temperature: float = 1.0
    origin: Origin = Origin()  # noqa: RUF009

    def __post_init__(self) -> None:
        check_means(self.mean)
        checked_temperature(self.temperature)
        check_names("var", self.var, self.mean)
        ranks = {name: len(value) for name, value in self.deviations.items()}
        if min(ranks.values(), default=0) < 2 or len(set(ranks.values())) > 1:
            raise ValueError(f"deviations of rank {ranks} must have one common rank K >= 2; collect more iterates")
        check_names("deviations", {name: value[0] for name, value in self.deviations.items()}, self.mean)
        for name, var in self.var.items():
            if not ((var >= 0) & var.isfinite()).all():
                raise ValueError(f"var[{name!r}] has negative or non-finite entries; clamp it to [0, inf)")

    def __repr__(self) -> str:
        return f"LowRankGaussian over {size_of(self.mean)}, rank {self.rank}"

    @property
    def rank(self) -> int:
        """K, the number of deviations."""
        return next(iter(self.deviations.values())).shape[0]

    @property
    def std(self) -> Params:
        """Square root of the diagonal of the covariance: T (var / 2 + sum_k D_k^2 / (2 (K - 1)))."""
        share, root = 0.5 / (self.rank - 1), math.sqrt(self.temperature)
        return {
            name: (0.5 * var + share * self.deviations[name].square().sum(0)).sqrt().mul_(root)
            for name, var in self.var.items()
        }

    def perturbation(self, seed: Seed = 0, index: int = 0) -> Params:
        """sqrt(T) (sqrt(var / 2) z1 + D z2 / sqrt(2 (K - 1))), the part of `sample` that is random."""
        root = math.sqrt(self.temperature)
        like = next(iter(self.mean.values())).new_empty(self.rank)
        factors = normals(like, seed, index, stream=FACTORS).mul_((2.0 * (self.rank - 1)) ** -0.5)
        noise = normals_by_name(self.mean, seed, index)
        for name in self.mean:
            noise[name].mul_((0.5 * self.var[name]).sqrt())
            deviations = self.deviations[name].to(noise[name].dtype)
            noise[name].add_(torch.tensordot(factors.to(deviations), deviations, dims=1)).mul_(root)
        return noise

    def log_prob(self, params: Params) -> Tensor:
        """log q(theta) in float64, through the K x K matrix I + B^T A^-1 B of the covariance A + B B^T.

        Needs var > 0 and a temperature > 0.

        >>> q = LowRankGaussian({"w": torch.zeros(1)}, {"w": torch.tensor([1.0])}, {"w": torch.tensor([[1.0], [2.0]])})
        >>> round(q.log_prob({"w": torch.zeros(1)}).item(), 6)  # -log(2 pi * 3) / 2
        -1.468245
        """
        check_names("params", params, self.mean)
        flat = [name for name, var in self.var.items() if (var == 0).any()]
        if flat:
            raise ValueError(
                f"var[{flat[0]!r}] has zeros, so there is no density; clamp var at a small value such as 1e-30"
            )
        if self.temperature == 0:
            raise ValueError("temperature=0.0 leaves the mean alone, which has no density; use a temperature > 0")
        size, log_det, square = 0, 0.0, 0.0
        scale = math.sqrt(self.temperature / (2.0 * (self.rank - 1)))
        small = torch.eye(self.rank, dtype=torch.float64)  # (K, K)
        projected = torch.zeros(self.rank, dtype=torch.float64)  # (K,)
        for name, mean in self.mean.items():
            var = 0.5 * self.temperature * self.var[name].double().flatten().cpu()
            offset = (params[name].double() - mean.double()).flatten().cpu()
            factor = self.deviations[name].double().flatten(1).cpu() * scale  # (K, P)
            small += (factor / var) @ factor.T
            projected += (factor / var) @ offset
            log_det = log_det + var.log().sum()
            square = square + (offset.square() / var).sum()
            size += var.numel()
        root = torch.linalg.cholesky(small)
        half = torch.linalg.solve_triangular(root, projected[:, None], upper=False)
        log_det = log_det + 2.0 * root.diagonal().log().sum()
        return -0.5 * (size * math.log(2.0 * math.pi) + log_det + square - half.square().sum())

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> LowRankGaussian:
        """The same posterior on another device or in another float dtype."""
        return replace(
            self,
            mean=cast(self.mean, device, dtype),
            var=cast(self.var, device, dtype),
            deviations=cast(self.deviations, device, dtype),
            fixed=None if self.fixed is None else cast(self.fixed, device, dtype),
        )
