"""What an engine needs to know about an update rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Rule(NamedTuple):
    """An update rule as functions on tensors of one shape. It knows nothing of parameters, samples or memory.

    Attributes:
        name: under which an engine with kernels finds those of this rule.
        state: the state tensors beside the mean, in the order in which `step` takes them.
        initial: state tensor -> the hyperparameter that it starts at. The others start at 0.
        curvature: the one of them that sigma is made of: sigma = 1 / sqrt(ess (curvature + weight_decay)).
        std: (curvature, ess, weight_decay) -> sigma. The last two are numbers, or tensors where parameters with
            different scales are computed together.
        estimate: (approximation, grad, curvature, epsilon, ess, weight_decay) -> hhat of one sample. `epsilon` makes
            the standard normals of the sample when it is called; not every approximation needs them.
        has_products: whether hhat is a product with the noise, so that several samples need the mean of products.
        restarts: running average, with the decay beta2, that a huge gradient drives to its largest number -> the
            momentum beside it. Such entries of both are started anew (`optim/saturation.py`).
        step: (values, grad, hhat, hyper, prior_mean) -> the mean and the state tensors after a step.
    """

    name: str
    state: tuple[str, ...]
    initial: Mapping[str, str]
    curvature: str
    std: Callable[..., Tensor]
    estimate: Callable[..., Tensor]
    step: Callable[[tuple[Tensor, ...], Tensor, Tensor, Any, Tensor | float], tuple[Tensor, ...]]
    has_products: bool = True
    restarts: Mapping[str, str] = MappingProxyType({})


def no_std(curvature: Tensor, ess: float, weight_decay: float) -> Tensor:
    """sigma of a rule that learns a point: 0.

    >>> no_std(torch.ones(2), ess=1.0, weight_decay=0.0)
    tensor([0., 0.])
    """
    return torch.zeros_like(curvature)
