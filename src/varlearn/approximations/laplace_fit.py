"""The Laplace approximation: a Gaussian at trained weights; its precision is the generalized Gauss-Newton matrix."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from varlearn.approximations import curvature_sums
from varlearn.approximations.curvature_sums import Curvature
from varlearn.approximations.output_curvature import last_layer, output_curvature, uncompiled
from varlearn.posterior import DiagGaussian, KroneckerGaussian, LowRankGaussian, Origin, Point
from varlearn.posterior.binding import model_tensors
from varlearn.posterior.tensors import size_of
from varlearn.prediction import predict
from varlearn.prediction.loader_batches import Unpack, arguments, device_of, move, outputs_of, split_batch
from varlearn.prediction.temperature import golden_section, nll_of
from varlearn.types import Params

Layers = Literal["last", "all"]
Structure = Literal["full", "kron", "diag"]

_GRID = [math.log(10.0) * exponent / 2.0 for exponent in range(-12, 13)]  # 25 precisions from 1e-6 to 1e6
_VALIDATION_GRID = [10.0 ** (exponent / 2.5) for exponent in range(-10, 11)]  # 21 from 1e-4 to 1e4


@dataclass(frozen=True, repr=False)
class Laplace:
    """The curvature at trained weights, from which a posterior is made for any prior; see `fit_laplace`.

    Attributes:
        curvature: the generalized Gauss-Newton matrix of the summed loss, in its eigenvectors.
        at: the weights of the layers that are random, and the rest as fixed tensors.
        n: terms of the loss.
        log_likelihood: of the training targets at these weights.
        origin: what the posterior's file says; also how it predicts.
    """

    curvature: Curvature
    at: Point
    n: int
    log_likelihood: float
    origin: Origin

    def __repr__(self) -> str:
        return f"Laplace of {size_of(self.at.mean)}, fitted to {self.n:,} terms of the loss"

    def posterior(self, prior_precision: float = 10.0) -> DiagGaussian | KroneckerGaussian | LowRankGaussian:
        """The Gaussian with the trained weights as its mean and the curvature plus the prior's precision.

        `predict` uses it as it was fitted: the last layer by sampled weights, in which the network is linear, all
        layers by the network linearized at the mean.

        Args:
            prior_precision: of every weight, around 0; 10 is the paper's.
        """
        _check_precision(prior_precision)
        return self.curvature.posterior(self.at, self.n, prior_precision, self.origin)

    def log_marginal_likelihood(self, prior_precision: float) -> float:
        """Laplace's estimate of log p(data) under a prior precision d.

        It is log p(data | m) - (d |m|^2 + sum_k log(1 + e_k / d)) / 2, with e_k the eigenvalues of the curvature.
        """
        _check_precision(prior_precision)
        square = sum(float(value.double().square().sum()) for value in self.at.mean.values())
        logs = torch.log1p(self.curvature.eigenvalues() / prior_precision).sum()
        return self.log_likelihood - 0.5 * (prior_precision * square + float(logs))

    def best_precision(self) -> float:
        """The prior precision with the largest marginal likelihood, of those between 1e-6 and 1e6."""

        def loss(log_precision: float) -> float:
            return -self.log_marginal_likelihood(math.exp(log_precision))

        best = min(_GRID, key=loss)
        width = _GRID[1] - _GRID[0]
        return math.exp(golden_section(loss, best - width, best + width, tolerance=1e-6)[1])

    def validated_precision(
        self,
        model: nn.Module,
        loader: Iterable[Any],
        samples: int = 64,
        seed: int = 0,
        *,
        by: Callable[..., Any] = predict,
        **options: Any,
    ) -> float:
        """The prior precision, of 21 between 1e-4 and 1e4, whose predictions of held-out data have the lowest NLL.

        Args:
            model: the network.
            loader: held-out data with targets; gives the same batches in every pass. Not the test data.
            samples: as for the predictions.
            seed: names the samples.
            by: the function that predicts; called as by(model, posterior, loader, samples, seed, **options).
            **options: for `by`.
        """
        scores = {
            precision: nll_of(by(model, self.posterior(precision), loader, samples, seed, **options))
            for precision in _VALIDATION_GRID
        }
        return min(scores, key=scores.__getitem__)


def fit_laplace(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    layers: Layers = "last",
    structure: Structure = "full",
    noise_variance: float | None = None,
    unpack: Unpack | None = None,
    forward: Callable[[Any], Any] | None = None,
) -> Laplace:
    """Fit the curvature of the loss at the weights of a trained network, by one pass over the training data.

    The curvature is the generalized Gauss-Newton matrix sum_n J_n^T H_n J_n of the summed negative log-likelihood: J_n
    the Jacobian of the outputs by the weights, H_n the Hessian of the likelihood by the outputs. For the last layer it
    costs little more than a forward pass; for all layers as many backward passes per example as there are outputs.

    Args:
        model: a trained network; in eval mode meanwhile, and as before afterwards.
        loader: the training data without augmentation: pairs (inputs, targets).
        layers: "last" for the linear layer that makes the outputs, "all" for all trainable weights.
        structure: "full" for the whole matrix, "diag" for its diagonal, "kron" for one Kronecker product per tensor,
            of the last layer alone.
        noise_variance: of a regression whose network gives means. None for classes, and for pairs (mean, variance).
        unpack: from a batch to (inputs, targets).
        forward: how the model is called with inputs, e.g. under autocast; None calls it.

    Raises:
        ValueError: if the last layer is not linear, or the matrix is too large.

    >>> net = nn.Linear(1, 2, bias=False)
    >>> _ = nn.init.zeros_(net.weight)
    >>> laplace = fit_laplace(net, [(torch.ones(8, 1), torch.zeros(8, dtype=torch.long))], structure="diag")
    >>> laplace.posterior(prior_precision=2.0).std["weight"].square().flatten()  # 1 / (8 p (1 - p) + 2)
    tensor([0.2500, 0.2500])
    """
    if layers not in ("last", "all") or structure not in ("full", "kron", "diag"):
        raise ValueError(
            f"layers={layers!r} must be 'last' or 'all', structure={structure!r} 'full', 'kron' or 'diag'; "
            "layers='last', structure='full' is usual"
        )
    if layers == "all" and structure == "kron":
        raise ValueError("structure='kron' is for the last layer; use layers='last', or structure='diag'")
    if noise_variance is not None and not 0.0 < noise_variance < math.inf:
        raise ValueError(f"noise_variance={noise_variance} must be > 0 and finite; it is a variance, not a std")
    device, unpack, call = device_of(model), unpack or split_batch, forward or _caller(model)
    sums: curvature_sums.Sums | None = None
    n, log_likelihood = 0, 0.0
    with _evaluated(model):
        for number, batch in enumerate(loader):
            inputs, targets = unpack(batch)
            inputs = move(inputs, device)
            if targets is None:
                raise ValueError("the loader gives no targets; give pairs (inputs, targets)")
            if sums is None:
                sums = _empty_sum(model, inputs, layers, structure, call)
            outputs, add = sums.forward(inputs)
            _check_finite(outputs, number)
            found = output_curvature(outputs, targets.to(device), noise_variance)
            add(found.curvature)
            n += len(found.curvature)
            log_likelihood += found.log_likelihood
    if sums is None:
        raise ValueError("the loader gave no batch; pass the training data")
    # Outputs are linear in the last layer; a pair's variance must stay positive, which its linearization would not.
    linear = layers == "all" and not isinstance(outputs, (tuple, list))
    origin = Origin(method="laplace", per="sum", n=n, predict="linearized" if linear else "weights")
    return Laplace(sums.finish(n), _point(model, sums.names), n, log_likelihood, origin)


def refuse_unfit(
    model: nn.Module, inputs: Any, layers: Layers, structure: Structure, forward: Callable[[Any], Any] | None = None
) -> None:
    """Raise what `fit_laplace` would raise about a network, before it is trained.

    Args:
        model: in eval mode meanwhile, and as before afterwards.
        inputs: of a batch.
        layers: as for the fit.
        structure: as for the fit.
        forward: as for the fit.

    >>> refuse_unfit(nn.Linear(600, 10), torch.ones(1, 600), "last", "full")
    Traceback (most recent call last):
    ...
    ValueError: structure='full' has a matrix of 6,010 x 6,010 and must have at most 5,000 weights; use structure='kron'
    """
    with _evaluated(model):
        _empty_sum(model, inputs, layers, structure, forward or _caller(model))


@contextlib.contextmanager
def _evaluated(model: nn.Module) -> Iterator[None]:
    """The network uncompiled and in eval mode."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with uncompiled(model):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _empty_sum(
    model: nn.Module, inputs: Any, layers: Layers, structure: Structure, call: Callable[[Any], Any]
) -> curvature_sums.Sums:
    if layers == "all" and not isinstance(inputs, Tensor):
        raise ValueError("layers='all' needs inputs that are one tensor; use layers='last'")
    with torch.no_grad():
        last = last_layer(model, call, inputs) if layers == "last" else None
    return curvature_sums.start(model, last, structure, call)


def _point(model: nn.Module, names: Iterable[str]) -> Point:
    params, buffers, tied = model_tensors(model)
    mean: Params = {name: params[name].detach().clone() for name in names}
    rest: dict[str, Tensor] = {**{name: param for name, param in params.items() if name not in mean}, **buffers}
    return Point(mean, {name: value.detach().clone() for name, value in rest.items()}, tied)


def _caller(model: nn.Module) -> Callable[[Any], Any]:
    def call(inputs: Any) -> Any:
        args, kwargs = arguments(inputs)
        return outputs_of(model(*args, **kwargs))

    return call


def _check_finite(outputs: Any, batch: int) -> None:
    if not all(bool(part.isfinite().all()) for part in tree_leaves(outputs)):
        raise ValueError(
            f"batch {batch} has NaN or infinity in the outputs, which must be finite; check the data, then whether "
            "training diverged"
        )


def _check_precision(value: float) -> None:
    if not 0.0 < value < math.inf:
        raise ValueError(f"prior_precision={value} must be > 0 and finite; 10 is the paper's")
