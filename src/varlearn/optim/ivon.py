"""IVON as a `torch.optim.Optimizer`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from varlearn.core import update
from varlearn.optim import hyper, objective
from varlearn.optim.ivon_diagnostics import IVONDiagnostics, diagnose_ivon
from varlearn.optim.variational import VariationalOptimizer


class IVON(VariationalOptimizer):
    r"""Improved Variational Online Newton: AdamW's place in the loop, a Gaussian over the weights as the result.

    Minimizes lambda * E_q[loss] + KL(q || p) over q = N(m, sigma^2), with sigma = 1 / sqrt(lambda (h + delta)) and the
    prior p = N(m0, 1 / (lambda delta)). The loss is a mean over examples. A step needs the gradient at a sample of q::

        for inputs, targets in loader:
            with opt.sampled_params(train=True):  # weights are a sample inside, the mean outside
                opt.zero_grad()
                loss_fn(model(inputs), targets).backward()
            opt.step()

    Several blocks before a `step()` are several Monte-Carlo samples, and are averaged; do not divide the loss.
    Micro-batches of one sample share a block; divide the loss by their number as usual. Trainers that call
    `optimizer.train()` and `optimizer.eval()` need no block. Between backward and `step()`, `p.grad` is what it is with
    every optimizer: clip it, unscale it, log it.

    Args:
        params: parameters, named parameters, or groups of them, as for every PyTorch optimizer.
        lr: alpha. For ResNets SGD's, or larger; momentum is an average here, so SGD's 0.1 with momentum 0.9 is 1.0.
        ess: lambda, the effective sample size; start with the number of training examples.
        hess_init: h0. Larger is more deterministic at first; 0.01 to 1 is typical.
        betas: (beta1, beta2), the momenta of the gradient and of the Hessian. `beta1=` and `beta2=` work too.
        weight_decay: delta. It is the prior: its precision is ess * weight_decay.
        mc_samples: how many samples `step(closure)` draws; the largest among the groups counts.
        clip_radius: xi, the bound on each entry of the preconditioned gradient. 1e-3 helps transformers. Use
            `rescale_lr=False` with it.
        rescale_lr: multiply lr by (h0 + delta), so that the first steps are as long as SGD's.
        debias: divide the momentum by 1 - beta1^t.
        hess_approx: "reparam" (the paper's) or "squared_gradient". ivon-opt's "price" and "gradsq" mean the same.
        prior_mean: m0: None for 0, a number, "init" for the weights at the first sample, or one tensor per parameter
            (a sequence, or a dict by name where parameters are named).
        noise: "independent" samples on each rank of a process group, or one that they have in common ("shared").
        seed: of the noise. None takes `torch.initial_seed()`, so `torch.manual_seed` decides; nothing is consumed.
        nonfinite: what a NaN or infinite gradient does to `step()`: "skip" it, state untouched, or "raise".
        max_grad_norm: clip ghat to this norm over all parameters, and leave hhat alone. `clip_grad_norm_` instead
            shrinks both, which biases h.
        memory: "fast" copies the mean into a buffer that stays allocated between samples, the third for each weight
            beside the state's two; "lean" has none and recovers the mean by subtracting the noise, an ulp off.
        foreach: True for the engine of few large tensor operations; None decides by device.
        fused: True for the engine with compiled kernels; None decides by device and compiler. Both False: the plain
            loop.
        maximize: ascend instead of descend.
        beta1: instead of `betas`.
        beta2: instead of `betas`.
        sync: ivon-opt's switch for averaging over ranks. It changes nothing: DistributedDataParallel averages, and
            `step()` raises on every rank if the gradients were not averaged.

    >>> weight = torch.nn.Parameter(torch.tensor([2.0]))
    >>> opt = IVON([weight], lr=0.5, ess=100.0, betas=(0.9, 0.99), weight_decay=0.0, seed=0)
    >>> for _ in range(500):
    ...     with opt.sampled_params(train=True):
    ...         opt.zero_grad()
    ...         (2.0 * (weight - 1.0) ** 2).sum().backward()
    ...     opt.step()
    >>> abs(weight.item() - 1.0) < 0.1, 3.0 < opt.state[weight]["hess"].item() < 5.0  # mode 1, curvature 4
    (True, True)
    """

    rule = update.RULE
    _step_supports_amp_scaling = True  # GradScaler hands over its scale, and whether it found an overflow

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        ess: float,
        *,
        hess_init: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.99999),
        weight_decay: float = 1e-4,
        mc_samples: int = 1,
        clip_radius: float = math.inf,
        rescale_lr: bool = True,
        debias: bool = True,
        hess_approx: Literal["reparam", "squared_gradient", "price", "gradsq"] = "reparam",
        prior_mean: float | Literal["init"] | Sequence[Tensor] | Mapping[str, Tensor] | None = None,
        noise: Literal["independent", "shared"] = "independent",
        seed: int | None = None,
        nonfinite: Literal["skip", "raise"] = "skip",
        max_grad_norm: float | None = None,
        memory: Literal["fast", "lean"] = "fast",
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        beta1: float | None = None,
        beta2: float | None = None,
        sync: bool | None = None,
    ) -> None:
        defaults = hyper.arguments(locals(), "sync", "beta1", "beta2")
        defaults["seed"] = torch.initial_seed() if seed is None else seed
        defaults |= {name: beta for name, beta in (("beta1", beta1), ("beta2", beta2)) if beta is not None}
        given = objective.is_given(prior_mean)
        defaults["prior_mean"] = None if given else prior_mean
        hyper.normalize(defaults)
        super().__init__(params, defaults)
        self._warn_of_flat_prior(float(weight_decay))
        self._warn_of_rescaled_clipping()
        if given:
            objective.assign_prior_mean(self, self.param_groups, prior_mean)

    def _warn_of_flat_prior(self, weight_decay: float) -> None:
        """Trainers build the groups themselves, with their own weight decay: Hugging Face's is 0 unless told."""
        values = [float(group["weight_decay"]) for group in self.param_groups]
        if weight_decay > 0.0 and len(values) > 1 and not any(values):
            warnings.warn(
                f"weight_decay={weight_decay:g} is 0 in every parameter group, so the prior is flat; in Hugging Face's "
                f"Trainer use TrainingArguments(weight_decay={weight_decay:g}), elsewhere set it in the groups or pass "
                "weight_decay=0.0 to IVON too if it is meant",
                UserWarning,
                stacklevel=3,
            )

    def _warn_of_rescaled_clipping(self) -> None:
        """Clipping already bounds the first steps; with rescaling on top, small h0 make them too short."""
        for group in self.param_groups:
            radius = float(group["clip_radius"])
            if group["rescale_lr"] and radius < math.inf:
                lr = float(group["lr"])
                scale = float(group["hess_init"]) + float(group["weight_decay"])
                warnings.warn(
                    f"clip_radius={radius:g} with rescale_lr=True: a weight moves by at most lr * (hess_init + "
                    f"weight_decay) * clip_radius = {lr * scale * radius:.3g} in a step. The paper does not rescale lr "
                    f"when it clips (Section 3); pass rescale_lr=False, with lr={lr * scale:.3g} for the same steps",
                    UserWarning,
                    stacklevel=3,
                )
                return

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own hyperparameters; they join at the next sample."""
        objective.add_group(self, super().add_param_group, param_group)

    def _hyper(self, group: dict[str, Any], step: int) -> update.Hyper:
        return step_hyper(group, step)

    def diagnostics(self) -> list[IVONDiagnostics]:
        """Statistics of h, sigma and the step, one entry per group: what Appendix A says to monitor."""
        self._settle()
        return diagnose_ivon(self, self._members)


def step_hyper(group: dict[str, Any], step: int) -> update.Hyper:
    """The scalars of step number `step` (1 is the first) of a group."""
    beta1, beta2 = (float(beta) for beta in group["betas"])
    weight_decay = float(group["weight_decay"])
    rescale = float(group["hess_init"]) + weight_decay if group["rescale_lr"] else 1.0
    return update.Hyper(
        lr=float(group["lr"]) * rescale,
        ess=float(group["ess"]),
        weight_decay=weight_decay,
        beta1=beta1,
        beta2=beta2,
        clip_radius=float(group["clip_radius"]),
        debias=1.0 - beta1**step if group["debias"] else 1.0,
    )
