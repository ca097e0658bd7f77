"""The loop of every prediction: samples outside, batches inside."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from varlearn.core.shards import is_sharded, reshard
from varlearn.posterior.binding import check_fits
from varlearn.posterior.discrete import Point, components
from varlearn.prediction.guard import preserved
from varlearn.prediction.loader_batches import OrderWatch, Unpack, check_repeatable, device_of, move, split_batch
from varlearn.prediction.progress import tracked
from varlearn.prediction.sampler_mixture import SamplerMixture
from varlearn.prediction.samplers import Linearized, Weights
from varlearn.types import Forward, Posterior, Sampler

Consume = Callable[[int, Any, Tensor | None, Tensor], None]
"""Takes (number of the batch, outputs with a leading dimension of samples, targets, log weights of these samples)."""

# Samples that vmap holds at once; each costs a copy of the weights and of the activations.
_VMAP_SAMPLES = 16


class Stratum(NamedTuple):
    """A component of the posterior: its weight, how often to draw from it, and the sampler that does it."""

    weight: float
    samples: int
    sampler: Sampler


@dataclass(frozen=True)
class Request:
    """How to run a prediction; see `varlearn.prediction.predict` for the meaning of each."""

    samples: int = 64
    seed: int = 0
    vectorize: bool = False
    unpack: Unpack | None = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.samples, int) or self.samples < 1:
            raise ValueError(f"samples={self.samples!r} must be a whole number >= 1; the paper uses 64")
        if not isinstance(self.seed, int):
            raise ValueError(
                f"seed={self.seed!r} must be an integer; it names the samples, so that they can be redrawn"
            )


def strata(source: Posterior | Sampler, samples: int) -> list[Stratum]:
    """Split a posterior or sampler into weighted components with `samples` draws each.

    One draw is enough for a point and for a posterior of temperature 0. A posterior that was fitted to the linearized
    network is predicted with it.

    >>> point = Point({"w": torch.zeros(1)})
    >>> strata(point, samples=64)[0].samples
    1
    """
    if isinstance(source, SamplerMixture):
        return [
            stratum._replace(weight=weight * stratum.weight)
            for weight, part in zip(source.weights, source.parts, strict=True)
            for stratum in strata(part, samples)
        ]
    if isinstance(source, (Weights, Linearized)):
        return [
            Stratum(weight, 1 if _is_certain(part) else samples, replace(source, posterior=part))
            for weight, part in components(source.posterior)
        ]
    if callable(getattr(source, "draw", None)):
        return [Stratum(1.0, samples, source)]  # type: ignore[arg-type]
    if callable(getattr(source, "sample", None)):
        return [
            Stratum(weight, 1 if _is_certain(part) else samples, _as_fitted(part))
            for weight, part in components(source)  # type: ignore[arg-type]
        ]
    raise TypeError(f"a {type(source).__name__} is neither a posterior nor a sampler; pass e.g. a DiagGaussian")


def _as_fitted(posterior: Posterior) -> Weights | Linearized:
    """The sampler with which a posterior was fitted: of the linearized network where its origin says so."""
    origin = getattr(posterior, "origin", None)
    return Linearized(posterior) if getattr(origin, "predict", None) == "linearized" else Weights(posterior)


def _is_certain(posterior: Posterior) -> bool:
    return isinstance(posterior, Point) or getattr(posterior, "temperature", 1.0) == 0


def run(
    model: nn.Module, source: Posterior | Sampler, loader: Iterable[Any], consume: Consume, request: Request
) -> tuple[list[Tensor | None], Tensor]:
    """Feed the outputs of every sample for every batch to `consume`; the model is as before afterwards.

    Draw i of component k out of K has the index i * K + k, so more samples extend what fewer would have drawn.

    Returns:
        (targets of each batch on the CPU or None, weights of the samples in the order of consumption, shape (S,)).
    """
    parts = strata(source, request.samples)
    reshard(model)
    has_shards = any(map(is_sharded, model.parameters()))
    for part in parts:
        if isinstance(part.sampler, (Weights, Linearized)):
            check_fits(part.sampler.posterior, model)
        if has_shards and (request.vectorize or isinstance(part.sampler, Linearized)):
            raise ValueError(
                "vectorize=True and Linearized call the model with stacked or shifted weights, and a sharded model "
                "gathers its own; leave them out, or use the posterior's gathered() and an unsharded model"
            )
        if request.vectorize and not hasattr(part.sampler, "draw_many"):
            raise ValueError(
                f"vectorize=True stacks sampled weights, and {type(part.sampler).__name__} samples something else; "
                "leave it False"
            )
    passes = sum(part.samples for part in parts)
    check_repeatable(loader, passes)
    walk = _Walk(loader, request.unpack or split_batch, device_of(model), consume)
    weights: list[float] = []
    with (
        _resharded(model),
        preserved(model) as restore,
        torch.no_grad(),
        tracked("predict", passes, request.progress) as advance,
    ):
        for number, part in enumerate(parts):
            reshard(model)
            restore()  # a component without fixed tensors takes the model's, not those of the component before it
            model.eval()
            part.sampler.start(model)
            for forward, count in _draws(part, model, request, number, len(parts)):
                share = [part.weight / part.samples] * count
                walk.go(forward, torch.tensor([math.log(weight) for weight in share], dtype=torch.float64))
                weights += share
                advance(count)
    return walk.targets, torch.tensor(weights, dtype=torch.float64)


def _draws(part: Stratum, model: nn.Module, request: Request, number: int, of: int) -> Iterator[tuple[Forward, int]]:
    """Predictors with outputs of shape (samples, ...), and their numbers of samples."""
    indices = [draw * of + number for draw in range(part.samples)]
    if request.vectorize:
        for start in range(0, len(indices), _VMAP_SAMPLES):
            chunk = indices[start : start + _VMAP_SAMPLES]
            yield part.sampler.draw_many(model, request.seed, chunk), len(chunk)  # type: ignore[attr-defined]
        return
    for index in indices:
        reshard(model)  # FSDP2's root module would go on with the weights of the sample before
        yield _one(part.sampler.draw(model, request.seed, index)), 1


@contextlib.contextmanager
def _resharded(model: nn.Module) -> Iterator[None]:
    """Whatever happens inside, the model gathers its weights anew afterwards."""
    try:
        yield
    finally:
        reshard(model)


def _one(forward: Forward) -> Forward:
    return lambda inputs: tree_map(lambda output: output.unsqueeze(0), forward(inputs))


class _Walk:
    """Passes over the loader, checked to be all the same."""

    def __init__(self, loader: Iterable[Any], unpack: Unpack, device: torch.device, consume: Consume):
        self._loader, self._unpack, self._device, self._consume = loader, unpack, device, consume
        self._watch = OrderWatch()
        self.targets: list[Tensor | None] = []

    def go(self, forward: Forward, log_weights: Tensor) -> None:
        for number, batch in enumerate(self._loader):
            inputs, targets = self._unpack(batch)
            targets = None if targets is None else torch.as_tensor(targets)
            self._watch.see(number, inputs, targets)
            if number == len(self.targets):
                self.targets.append(None if targets is None else targets.detach().cpu())
            self._consume(number, forward(move(inputs, self._device)), targets, log_weights)
        self._watch.end_pass()
