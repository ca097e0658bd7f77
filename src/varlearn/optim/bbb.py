"""Bayes by backprop as a `torch.optim.Optimizer`."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from varlearn.core import bbb
from varlearn.core.dtypes import state_dtype
from varlearn.optim import hyper, state
from varlearn.optim.variational import VariationalOptimizer


class BBB(VariationalOptimizer):
    r"""Bayes by backprop: mean and width of every weight learn by Adam, from gradients at samples.

    Minimizes lambda E_q[loss] + KL(q || p) over q = N(m, sigma^2), with the KL summed over all weights, for any module
    as it is: samples are written into its weights, and the gradient of sigma is the gradient at the sample times its
    noise. The means start where the network starts. Neither mean nor width decays: the prior alone pulls::

        opt = BBB(model.parameters(), lr=2e-3, ess=len(dataset))
        for inputs, targets in loader:
            with opt.sampled_params(train=True):
                opt.zero_grad()
                loss_fn(model(inputs), targets).backward()
            opt.step()

    Args:
        params: parameters, named parameters, or groups of them.
        lr: Adam's learning rate, of the means and of rho, where sigma = log(1 + e^rho).
        ess: lambda, the number of training examples.
        hess_init: h0: sigma starts as IVON's, at 1 / sqrt(lambda (h0 + delta)).
        std_init: first sigma, in place of `hess_init`; 0 makes points that stay points.
        weight_decay: delta. It is the prior: its precision is ess * weight_decay.
        prior_std: width of the prior, in place of `weight_decay`.
        kl_weight: factor of the KL; 1 is the evidence lower bound.
        decay: decoupled decay of means and rho, which no objective asks for; for the paper's variant.
        betas: Adam's (beta1, beta2).
        eps: Adam's eps.
        mc_samples: how many samples `step(closure)` draws.
        prior_mean: None for 0, a number, or "init" for the weights at the first sample.
        noise: "independent" samples on each rank of a process group, or one that they have in common ("shared").
        seed: of the noise. None takes `torch.initial_seed()`; nothing is consumed.
        nonfinite: what a NaN or infinite gradient does to `step()`: "skip" it, state untouched, or "raise".
        max_grad_norm: clip the gradient of the mean to this norm, and leave that of sigma alone.
        memory: "fast" keeps a copy of the mean while a sample is in; "lean" recovers it by subtracting the noise.
        foreach: True for the engine of few large tensor operations; None decides by device.
        maximize: ascend instead of descend.

    >>> weight = torch.nn.Parameter(torch.tensor([2.0]))
    >>> opt = BBB([weight], lr=0.05, ess=100.0, weight_decay=0.0, seed=0)
    >>> for _ in range(500):
    ...     with opt.sampled_params(train=True):
    ...         opt.zero_grad()
    ...         (2.0 * (weight - 1.0) ** 2).sum().backward()
    ...     opt.step()
    >>> abs(weight.item() - 1.0) < 0.1, 3.0 < opt.posterior_terms(weight)[0].item() < 5.0  # mode 1, curvature 4
    (True, True)
    """

    rule = bbb.RULE
    curvature_kind = None  # hess says what the width is; it estimates no Hessian
    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 2e-3,
        ess: float = 1.0,
        *,
        hess_init: float = 0.5,
        std_init: float | None = None,
        weight_decay: float = 1e-4,
        prior_std: float | None = None,
        kl_weight: float = 1.0,
        decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        mc_samples: int = 1,
        prior_mean: float | Literal["init"] | None = None,
        noise: Literal["independent", "shared"] = "independent",
        seed: int | None = None,
        nonfinite: Literal["skip", "raise"] = "skip",
        max_grad_norm: float | None = None,
        memory: Literal["fast", "lean"] = "fast",
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = hyper.arguments(locals(), "seed") | {"hess_approx": "reparam", "rho_init": None}
        if seed is not None:
            defaults["seed"] = seed
        hyper.check(defaults)
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own hyperparameters; they join at the next sample."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        first = group["std_init"]
        if first is None:
            first = (float(group["ess"]) * (float(group["hess_init"]) + _delta(group))) ** -0.5
        group["rho_init"] = bbb.rho_of(float(first))

    def start_of(self, param: Tensor) -> dict[str, Any]:
        """The state of a parameter, made now if it has none, e.g. to set `rho` weight by weight before training."""
        return state.of(self.state, param, self._group_of(param), self.rule)

    def posterior_terms(self, param: Tensor) -> tuple[Tensor, float, float]:
        """(h, lambda, delta) of a parameter, in IVON's form: 1 / sigma^2 = lambda (h + delta), delta the prior's."""
        group, its = self._group_of(param), self.state.get(param, {})
        ess, delta = float(group["ess"]), _delta(group)
        rho = its["rho"] if "rho" in its else torch.full_like(param, group["rho_init"], dtype=state_dtype(param))
        return bbb.std(rho).square_().mul_(ess).reciprocal_().sub_(delta), ess, delta

    def _hyper(self, group: dict[str, Any], step: int) -> bbb.Hyper:
        beta1, beta2 = (float(beta) for beta in group["betas"])
        weight = float(group["kl_weight"])
        scalars = float(group["lr"]), beta1, beta2, float(group["eps"]), float(group["decay"])
        return bbb.Hyper(*scalars, weight * _delta(group), weight / float(group["ess"]), step)


def _delta(group: dict[str, Any]) -> float:
    """The prior's precision over lambda."""
    if group["prior_std"] is None:
        return float(group["weight_decay"])
    return 1.0 / (float(group["ess"]) * float(group["prior_std"]) ** 2)
