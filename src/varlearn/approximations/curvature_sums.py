"""Sums of J^T H J over the data, in each structure, and the Gaussians that they give."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from varlearn.approximations.output_curvature import Forward, LastLayer
from varlearn.posterior import DiagGaussian, KroneckerGaussian, LowRankGaussian, Origin, Point
from varlearn.posterior.binding import model_tensors
from varlearn.prediction.loader_batches import arguments, outputs_of
from varlearn.prediction.samplers import plain_attention
from varlearn.types import Params

_LARGEST = 5_000  # weights of a full matrix: its eigenvectors take n^3 operations
_JACOBIAN = 1 << 25  # numbers of a Jacobian at a time

Add = Callable[[Tensor], None]


class Curvature(ABC):
    """A curvature of the summed loss, known by its eigenvalues."""

    @abstractmethod
    def eigenvalues(self) -> Tensor:
        """All of them, as one vector in float64."""

    @abstractmethod
    def posterior(
        self, at: Point, n: int, precision: float, origin: Origin
    ) -> DiagGaussian | KroneckerGaussian | LowRankGaussian:
        """The Gaussian around the point with this curvature plus a prior precision."""


@dataclass(frozen=True)
class Diagonal(Curvature):
    """Its diagonal, by tensor."""

    values: Params

    def eigenvalues(self) -> Tensor:
        """All of them, as one vector."""
        return torch.cat([value.flatten() for value in self.values.values()])

    def posterior(self, at: Point, n: int, precision: float, origin: Origin) -> DiagGaussian:
        """The Gaussian with this curvature plus the prior's precision."""
        hess = {name: (value / n).to(at.mean[name].dtype) for name, value in self.values.items()}
        origin = replace(origin, per="mean")
        return DiagGaussian(at.mean, hess, float(n), precision / n, fixed=at.fixed, tied=at.tied, origin=origin)


@dataclass(frozen=True)
class Full(Curvature):
    """Eigenvalues (P,) and eigenvectors in columns (P, P), over the tensors in the order of the point's mean."""

    values: Tensor
    vectors: Tensor

    def eigenvalues(self) -> Tensor:
        """All of them, as one vector."""
        return self.values

    def posterior(self, at: Point, n: int, precision: float, origin: Origin) -> LowRankGaussian:
        """The Gaussian with this curvature plus the prior's precision."""
        roots = self.vectors.T * (self.values + precision).rsqrt()[:, None]  # (P, P): rows sum to the covariance
        if len(roots) < 2:
            roots = torch.cat([roots, torch.zeros_like(roots)])
        roots = roots * math.sqrt(2.0 * (len(roots) - 1))
        parts = roots.split([value.numel() for value in at.mean.values()], dim=1)
        deviations = {
            name: part.reshape(-1, *value.shape).to(value)
            for (name, value), part in zip(at.mean.items(), parts, strict=True)
        }
        var = {name: torch.zeros_like(value) for name, value in at.mean.items()}
        return LowRankGaussian(at.mean, var, deviations, at.fixed, at.tied, origin=origin)


@dataclass(frozen=True)
class Kronecker(Curvature):
    """Of each tensor, the eigenvalues (R, C) and the eigenvectors of both factors."""

    values: Params
    left: Params
    right: Params

    def eigenvalues(self) -> Tensor:
        """All of them, as one vector."""
        return torch.cat([value.flatten() for value in self.values.values()])

    def posterior(self, at: Point, n: int, precision: float, origin: Origin) -> KroneckerGaussian:
        """The Gaussian with this curvature plus the prior's precision."""
        scale = {k: (v + precision).rsqrt().reshape(at.mean[k].shape).to(at.mean[k]) for k, v in self.values.items()}
        left, right = ({k: v.to(at.mean[k]) for k, v in side.items()} for side in (self.left, self.right))
        return KroneckerGaussian(at.mean, left, right, scale, at.fixed, at.tied, origin=origin)


class Sums(ABC):
    """A running sum over batches.

    Attributes:
        names: of the tensors that are random.
    """

    names: tuple[str, ...]

    @abstractmethod
    def forward(self, inputs: Any) -> tuple[Any, Add]:
        """The outputs for a batch, and a function that adds it, given H of its outputs (B, C, C)."""

    @abstractmethod
    def finish(self, n: int) -> Curvature:
        """The sum over n terms of the loss."""


def start(model: nn.Module, last: LastLayer | None, structure: str, call: Forward) -> Sums:
    """An empty sum for the last layer, or for all where there is none."""
    if last is not None:
        return {"full": _FullLast, "kron": _KroneckerLast, "diag": _DiagonalLast}[structure](last, call)
    return _All(model, structure, call)


class _Last(Sums):
    """The last layer: its Jacobian is its input, the features phi.

    The first batch is the one that the layer was found with, whose forward pass is not repeated.
    """

    def __init__(self, last: LastLayer, call: Forward) -> None:
        self.layer, self.names, self._call = last.layer, last.names, call
        self._first: LastLayer | None = last

    def forward(self, inputs: Any) -> tuple[Any, Add]:
        first, self._first = self._first, None
        found, outputs = self._pass(inputs) if first is None else (first.features, first.outputs)
        features = found.double().flatten(0, -2)  # (B, D)
        return outputs, lambda curvature: self._add(features, curvature)

    def _pass(self, inputs: Any) -> tuple[Tensor, Any]:
        found: list[Tensor] = []
        handle = self.layer.register_forward_hook(lambda _, given, out: found.append(given[0]))
        try:
            with torch.no_grad():
                outputs = self._call(inputs)
        finally:
            handle.remove()
        return found[0], outputs

    @abstractmethod
    def _add(self, features: Tensor, curvature: Tensor) -> None: ...


class _DiagonalLast(_Last):
    def __init__(self, last: LastLayer, call: Forward) -> None:
        super().__init__(last, call)
        self._weight: Tensor | float = 0.0
        self._bias: Tensor | float = 0.0

    def _add(self, features: Tensor, curvature: Tensor) -> None:
        diagonal = curvature.diagonal(dim1=1, dim2=2)  # (B, C)
        self._weight = self._weight + diagonal.T @ features.square()
        self._bias = self._bias + diagonal.sum(0)

    def finish(self, n: int) -> Diagonal:
        return Diagonal(dict(zip(self.names, (self._weight, self._bias), strict=False)))  # type: ignore[arg-type]


class _KroneckerLast(_Last):
    def __init__(self, last: LastLayer, call: Forward) -> None:
        super().__init__(last, call)
        self._inputs: Tensor | float = 0.0
        self._outputs: Tensor | float = 0.0

    def _add(self, features: Tensor, curvature: Tensor) -> None:
        self._inputs = self._inputs + features.T @ features
        self._outputs = self._outputs + curvature.sum(0)

    def finish(self, n: int) -> Kronecker:
        assert isinstance(self._inputs, Tensor)
        assert isinstance(self._outputs, Tensor)
        values_in, vectors_in = torch.linalg.eigh(self._inputs / n)
        values_out, vectors_out = torch.linalg.eigh(self._outputs)
        one = torch.ones(1, dtype=torch.float64, device=values_in.device)
        factors = zip(self.names, (values_in, one), (vectors_in, one[None]), strict=False)
        values, left, right = {}, {}, {}
        for name, along, vectors in factors:
            values[name] = values_out.clamp_min(0.0)[:, None] * along.clamp_min(0.0)
            left[name], right[name] = vectors_out, vectors
        return Kronecker(values, left, right)


class _FullLast(_Last):
    def __init__(self, last: LastLayer, call: Forward) -> None:
        super().__init__(last, call)
        _check_size(sum(part.numel() for part in last.layer.parameters()), "kron")
        self._total: Tensor | float = 0.0

    def _add(self, features: Tensor, curvature: Tensor) -> None:
        if len(self.names) > 1:
            features = torch.cat([features, torch.ones_like(features[:, :1])], 1)
        count, width = features.shape
        classes = curvature.shape[1]
        blocks = [
            features.T @ (features[:, None] * curvature[:, c, :, None]).reshape(count, -1) for c in range(classes)
        ]
        self._total = self._total + torch.stack(blocks).view(classes, width, classes, width)

    def finish(self, n: int) -> Full:
        total, size = self._total, self.layer.in_features
        assert isinstance(total, Tensor)
        classes, width = total.shape[:2]
        order = torch.arange(classes * width, device=total.device).view(classes, width)
        order = torch.cat([order[:, :size].flatten(), order[:, size:].flatten()])  # all of the weight, then the bias
        matrix = total.reshape(classes * width, -1)[order][:, order]
        values, vectors = torch.linalg.eigh(0.5 * (matrix + matrix.T))
        return Full(values.clamp_min(0.0), vectors)


class _All(Sums):
    """All layers, by Jacobians of single examples."""

    def __init__(self, model: nn.Module, structure: str, call: Forward) -> None:
        self._model, self._structure, self._call = model, structure, call
        self._params = {k: v.detach() for k, v in model_tensors(model).params.items() if v.requires_grad}
        self.names = tuple(self._params)
        self._size = sum(value.numel() for value in self._params.values())
        if structure == "full":
            _check_size(self._size, "diag")
        for name, module in model.named_modules():
            if isinstance(module, nn.RNNBase):
                raise ValueError(
                    f"layers='all' needs the Jacobians of single examples, which PyTorch does not have for "
                    f"{type(module).__name__} ({name}); use layers='last'"
                )
        self._total: Tensor | None = None

    def forward(self, inputs: Any) -> tuple[Any, Add]:
        with torch.no_grad():
            outputs = self._call(inputs)
        return outputs, lambda curvature: self._add(inputs, curvature)

    def _add(self, inputs: Tensor, curvature: Tensor) -> None:
        terms = len(curvature) // len(inputs)  # of the loss, per example
        step = max(1, _JACOBIAN // (self._size * curvature.shape[1] * terms))
        for place in range(0, len(inputs), step):
            self._add_chunk(inputs[place : place + step], curvature[place * terms : (place + step) * terms])

    def _add_chunk(self, inputs: Tensor, curvature: Tensor) -> None:
        def outputs(params: Params, one: Tensor) -> Tensor:
            args, kwargs = arguments(one[None])
            found = outputs_of(functional_call(self._model, params, args, kwargs))
            found = torch.cat([part.reshape(1, -1) for part in found], 1) if isinstance(found, (tuple, list)) else found
            return found.float().flatten(0, -2)  # (terms, C)

        with plain_attention():
            jacobians = vmap(jacrev(outputs), in_dims=(None, 0))(self._params, inputs)
        flat = torch.cat([value.flatten(3).flatten(0, 1) for value in self._as_rows(jacobians)], 2)  # (B, C, P)
        if self._structure == "diag":
            added = torch.einsum("ncp,ncd,ndp->p", flat, curvature.to(flat), flat).double()
        else:
            wide = flat.double()
            added = torch.einsum("ncp,ncq->pq", wide, torch.bmm(curvature, wide))
        self._total = added if self._total is None else self._total + added

    def _as_rows(self, jacobians: Params) -> list[Tensor]:
        """Each (examples, terms, C, parameters)."""
        return [jacobians[name].reshape(*jacobians[name].shape[:3], -1) for name in self.names]

    def finish(self, n: int) -> Curvature:
        assert self._total is not None
        if self._structure == "diag":
            parts = self._total.split([value.numel() for value in self._params.values()])
            return Diagonal({k: part.view(v.shape) for (k, v), part in zip(self._params.items(), parts, strict=True)})
        values, vectors = torch.linalg.eigh(0.5 * (self._total + self._total.T))
        return Full(values.clamp_min(0.0), vectors)


def _check_size(size: int, other: str) -> None:
    if size > _LARGEST:
        raise ValueError(
            f"structure='full' has a matrix of {size:,} x {size:,} and must have at most {_LARGEST:,} weights; "
            f"use structure={other!r}"
        )
