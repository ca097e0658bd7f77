"""Sources of random predictors: sampled weights, dropout masks, the linearized model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vmap
from torch.utils._pytree import tree_map

from varlearn.core.elementary_attention import plain_attention
from varlearn.core.noise import derive_key
from varlearn.posterior.binding import model_tensors, unwrap, write_into
from varlearn.posterior.draw import DROPOUT
from varlearn.prediction.guard import seeded
from varlearn.prediction.loader_batches import arguments, outputs_of
from varlearn.types import Forward, Params, Posterior


@dataclass(frozen=True)
class Weights:
    """The model at theta ~ q, written into its parameters in place once per draw. What `predict` makes of a posterior.

    >>> from varlearn.posterior import Point
    >>> net = nn.Linear(1, 1, bias=False)
    >>> forward = Weights(Point({"weight": torch.tensor([[3.0]])})).draw(net, seed=0, index=0)
    >>> forward(torch.tensor([[2.0]])).item()
    6.0
    """

    posterior: Posterior

    def start(self, model: nn.Module) -> None:
        """Write the tensors that go with the weights but are not random."""
        write_into(model, self.posterior.fixed or {})

    def draw(self, model: nn.Module, seed: int, index: int) -> Forward:
        """Write sample `index` into the model; the model is the predictor."""
        write_into(model, self.posterior.sample(seed, index))
        return _caller(model)

    def draw_many(self, model: nn.Module, seed: int, indices: Sequence[int]) -> Forward:
        """The predictor of several samples at once, by vmap: outputs get a leading dimension of samples."""
        params = model_tensors(model).params
        drawn = [_like(self.posterior.sample(seed, index), params) for index in indices]
        stacked = {name: torch.stack([sample[name] for sample in drawn]) for name in drawn[0]}
        inner = unwrap(model)

        def forward(inputs: Any) -> Any:
            args, kwargs = arguments(inputs)
            with plain_attention():
                return vmap(lambda sample: outputs_of(functional_call(inner, sample, args, kwargs)))(stacked)

        return forward


@dataclass(frozen=True)
class Linearized:
    """The model linearized at the posterior mean (GLM): f(x; m) + J(x) (theta - m) with theta ~ q.

    J (theta - m) is one forward-mode product along theta - m; the Jacobian is never formed, so the cost is about two
    forward passes for any number of outputs.

    >>> from varlearn.posterior import DiagGaussian
    >>> q = DiagGaussian({"weight": torch.tensor([[3.0]])}, {"weight": torch.tensor([[1.0]])}, ess=1.0)
    >>> net, x = nn.Linear(1, 1, bias=False), torch.tensor([[2.0]])
    >>> sampler = Linearized(q)
    >>> sampler.start(net)
    >>> linear = sampler.draw(net, seed=0, index=0)(x)
    >>> torch.allclose(linear, Weights(q).draw(net, seed=0, index=0)(x))  # a linear model is its own linearization
    True
    """

    posterior: Posterior

    def start(self, model: nn.Module) -> None:
        """Write the mean and the tensors that go with it."""
        write_into(model, {**(self.posterior.fixed or {}), **self.posterior.mean})

    def draw(self, model: nn.Module, seed: int, index: int) -> Forward:
        """The linearized model moved along the perturbation of sample `index`."""
        params = model_tensors(model).params
        tangent = _like(_perturbation(self.posterior, seed, index), params)
        primal = {name: params[name].detach() for name in tangent}
        inner = unwrap(model)

        def forward(inputs: Any) -> Any:
            args, kwargs = arguments(inputs)
            with plain_attention():
                value, slope = jvp(
                    lambda sample: outputs_of(functional_call(inner, sample, args, kwargs)), (primal,), (tangent,)
                )[:2]
            return tree_map(torch.add, value, slope)

        return forward


@dataclass(frozen=True)
class Dropout:
    """The model with its dropout left on (MC-dropout), at the weights it has; all else stays in eval mode.

    A mask is a function of (seed, draw, number of the batch in its pass); PyTorch's global random state is not
    consumed. Masks therefore depend on the batch size.

    Args:
        modules: classes that drop in train mode, besides PyTorch's dropout, attention and recurrent modules.

    >>> net = nn.Sequential(nn.Dropout(0.5)).eval()
    >>> sampler = Dropout()
    >>> sampler.start(net)
    >>> sorted(set(sampler.draw(net, seed=0, index=0)(torch.ones(100)).tolist()))
    [0.0, 2.0]
    """

    modules: tuple[type[nn.Module], ...] = ()

    def start(self, model: nn.Module) -> None:
        """Switch the dropping modules to train mode."""
        found = [module for module in model.modules() if self._drops(module)]
        if not found:
            raise ValueError("the model has no active dropout module (p > 0), so all samples would be equal; add one")
        for module in found:
            module.training = True

    def draw(self, model: nn.Module, seed: int, index: int) -> Forward:
        """The model with the masks of sample `index`."""
        call = _caller(model)
        batch = 0

        def forward(inputs: Any) -> Any:
            nonlocal batch
            key = derive_key(seed, draw=index, index=batch, stream=DROPOUT)
            batch += 1
            with seeded(model, key):
                return call(inputs)

        return forward

    def _drops(self, module: nn.Module) -> bool:
        if isinstance(module, nn.modules.dropout._DropoutNd):
            return module.p > 0
        if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
            return module.dropout > 0
        if isinstance(module, nn.TransformerEncoderLayer):  # in eval mode it has a fast path that drops nothing
            return any(self._drops(part) for part in module.children())
        return isinstance(module, self.modules)


def _caller(model: nn.Module) -> Forward:
    def forward(inputs: Any) -> Any:
        args, kwargs = arguments(inputs)
        return outputs_of(model(*args, **kwargs))

    return forward


def _perturbation(posterior: Posterior, seed: int, index: int) -> Params:
    """theta - m, without the rounding of a subtraction where the posterior offers it."""
    perturbation = getattr(posterior, "perturbation", None)
    if perturbation is not None:
        return perturbation(seed, index)
    mean = posterior.mean
    return {name: value - mean[name] for name, value in posterior.sample(seed, index).items()}


def _like(values: Params, params: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: value.to(params[name]) for name, value in values.items()}
