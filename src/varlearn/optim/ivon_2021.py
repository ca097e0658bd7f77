"""The earlier IVON that won the NeurIPS 2021 competition, as a `torch.optim.Optimizer`."""

from __future__ import annotations

import math
from typing import Any, Literal

from torch import Tensor

from varlearn.core import ivon_2021
from varlearn.optim import hyper
from varlearn.optim.damped import DampedVariational, PriorMean


class IVON2021(DampedVariational):
    r"""IVON as it was in 2021: damping is added to the Hessian estimate, and the weight decay is inside the momentum.

    Used as `IVON`, whose arguments it has, and one more. It is here to compare with: `IVON` needs no damping and does
    as well.

    Args:
        params: parameters, named parameters, or groups of them.
        lr: alpha.
        ess: lambda, the effective sample size.
        hess_init: h0.
        betas: (beta1, beta2), the momenta of the gradient and of the Hessian.
        weight_decay: delta. The prior's precision is ess * weight_decay.
        damping: gamma, added to each hhat. The paper does not give the value that won.
        mc_samples: how many samples `step(closure)` draws.
        clip_radius: xi, the bound on each entry of the preconditioned gradient.
        rescale_lr: multiply lr by (h0 + delta).
        hess_approx: "reparam" or "squared_gradient".
        prior_mean: m0: None for 0, a number, "init", or tensors; see `IVON`.
        noise: "independent" samples on each rank of a process group, or one that they have in common ("shared").
        seed: of the noise. None takes `torch.initial_seed()`.
        nonfinite: what a NaN or infinite gradient does to `step()`: "skip" it, or "raise".
        max_grad_norm: clip ghat to this norm, and leave hhat alone.
        memory: "fast" keeps a copy of the mean while a sample is in; "lean" recovers it.
        foreach: True for the engine of few large tensor operations; None decides.
        fused: True for an engine with compiled kernels; this rule has none yet. None decides.
        maximize: ascend instead of descend.

    >>> import torch
    >>> weight = torch.nn.Parameter(torch.tensor([2.0]))
    >>> opt = IVON2021([weight], lr=0.1, ess=100.0, betas=(0.9, 0.99), damping=0.5, weight_decay=0.0, seed=0)
    >>> for _ in range(1000):
    ...     with opt.sampled_params(train=True):
    ...         opt.zero_grad()
    ...         (2.0 * (weight - 1.0) ** 2).sum().backward()
    ...     opt.step()
    >>> abs(weight.item() - 1.0) < 0.1, 3.5 < opt.state[weight]["hess"].item() < 5.5  # mode 1, curvature 4 + 0.5
    (True, True)
    """

    rule = ivon_2021.RULE

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        ess: float,
        *,
        hess_init: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.99999),
        weight_decay: float = 1e-4,
        damping: float = 1e-3,
        mc_samples: int = 1,
        clip_radius: float = math.inf,
        rescale_lr: bool = True,
        hess_approx: Literal["reparam", "squared_gradient", "price", "gradsq"] = "reparam",
        prior_mean: PriorMean = None,
        noise: Literal["independent", "shared"] = "independent",
        seed: int | None = None,
        nonfinite: Literal["skip", "raise"] = "skip",
        max_grad_norm: float | None = None,
        memory: Literal["fast", "lean"] = "fast",
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = hyper.arguments(locals(), "seed", "prior_mean") | {"momentum": "average"}
        super().__init__(params, defaults, seed, prior_mean)
