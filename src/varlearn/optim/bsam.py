"""Bayesian SAM as a `torch.optim.Optimizer`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from varlearn.core import bsam
from varlearn.core.vogn import Hyper
from varlearn.optim import hyper
from varlearn.optim.damped import DampedVariational, PriorMean
from varlearn.optim.moved_weights import MovedWeights


class BSAM(DampedVariational):
    r"""Bayesian SAM (Moellenhoff and Khan, 2023): a Gaussian over the weights, and SAM's perturbation of its mean.

    Each sample takes two backward passes: g at the sample, and then the gradient at m + rho g / (h + delta)::

        with opt.sampled_params(train=True):
            opt.zero_grad()
            loss_fn(model(inputs), targets).backward()
            opt.perturb()  # weights are now m + rho g / (h + delta), gradients are cleared
            loss_fn(model(inputs), targets).backward()
        opt.step()

    `step(closure)` does the same with a closure, which is called twice per sample.

    Args:
        params: parameters, named parameters, or groups of them.
        lr: alpha; 0.5 is the authors' for ResNets.
        ess: lambda, the number of training examples.
        rho: size of the perturbation.
        hess_init: h0.
        betas: (beta1, beta2), the momenta of the gradient and of the Hessian.
        weight_decay: delta. The prior's precision is ess * weight_decay; the authors' is 40.
        damping: gamma, added to each Hessian estimate.
        mc_samples: how many samples `step(closure)` draws.
        clip_radius: bound on each entry of the preconditioned gradient.
        prior_mean: m0: None for 0, a number, "init", or tensors; see `IVON`.
        seed: of the noise. None takes `torch.initial_seed()`.
        nonfinite: what a NaN or infinite gradient does to `step()`: "skip" it, or "raise".
        max_grad_norm: clip the second gradient to this norm.
        foreach: True for the engine of few large tensor operations; None decides.
        fused: True for an engine with compiled kernels; this rule has none yet. None decides.
        maximize: ascend instead of descend.

    >>> weight = torch.nn.Parameter(torch.tensor([2.0]))
    >>> opt = BSAM([weight], lr=0.2, ess=100.0, rho=0.01, weight_decay=0.01, seed=0)
    >>> def closure():
    ...     opt.zero_grad()
    ...     loss = ((weight - 1.0) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> for _ in range(100):
    ...     _ = opt.step(closure)
    >>> abs(weight.item() - 1.0) < 0.1
    True
    """

    rule = bsam.RULE

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        ess: float,
        *,
        rho: float = 0.01,
        hess_init: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 1e-3,
        damping: float = 0.1,
        mc_samples: int = 1,
        clip_radius: float = math.inf,
        prior_mean: PriorMean = None,
        seed: int | None = None,
        nonfinite: Literal["skip", "raise"] = "skip",
        max_grad_norm: float | None = None,
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = hyper.arguments(locals(), "seed", "prior_mean")
        defaults |= {"momentum": "average", "rescale_lr": False, "noise": "shared"}
        defaults["hess_approx"] = "squared_gradient"  # sqrt(h + delta) |g|, which is always handed in
        super().__init__(params, defaults, seed, prior_mean)

    def _start(self) -> None:
        super()._start()
        self._moved = MovedWeights()
        self._has_perturbed = False

    def _hyper(self, group: dict[str, Any], step: int) -> Hyper:
        return super()._hyper(group, step)._replace(debias=1.0)

    @torch.no_grad()
    def perturb(self, grad_scale: float = 1.0) -> None:
        """Inside a training block, after the first backward: move the weights to m + rho g / (h + delta), clear g.

        Args:
            grad_scale: the factor that GradScaler has given the gradients.
        """
        sample = self._block
        if sample is None or self._has_perturbed:
            found = "twice in a block" if sample is not None else "outside a training block"
            raise RuntimeError(f"perturb() {found}; call it once, between the two backward passes of a sample")
        if any(self._guard.has_noted(param) for param in sample.params):
            raise RuntimeError(
                "perturb() found gradients that were taken before the block; call zero_grad() first in the block"
            )
        self._has_perturbed = True
        self._weights.take_out(sample)
        estimates, changes = {}, []
        for param, state, group, _ in sample.members:
            grad = param.grad
            if grad is None:
                continue
            hess, delta = state["hess"], float(group["weight_decay"])
            grad = grad.to(hess.dtype) / grad_scale
            estimates[param] = bsam.estimate(grad, hess, delta)
            sign = -1.0 if group["maximize"] else 1.0
            changes.append((param, bsam.perturbation(grad, hess, sign * float(group["rho"]), delta)))
            param.grad = None
        self.hand_in_hess(estimates)
        self._moved.move(changes)

    @contextmanager
    def _training_block(self, until_step: bool = False) -> Iterator[None]:
        with super()._training_block():  # the sample is out before the step
            self._has_perturbed = False
            sample = self._block
            try:
                yield
                if not self._has_perturbed and sample and any(param.grad is not None for param in sample.params):
                    raise RuntimeError(
                        "a training block of BSAM ended without a second pass; call perturb() after the first "
                        "backward, then backward again"
                    )
                self._guard.forget(sample.params if sample else ())
            finally:
                try:
                    self._moved.put_back()
                except BaseException:  # an interrupt does not stop the mean from coming back
                    self._moved.put_back()
                    raise

    def _run(self, closure: Callable[[], Any]) -> Any:
        def both_passes() -> Any:
            loss = closure()
            self.perturb()
            closure()
            return loss

        return super()._run(both_passes)

    def train(self, *, stay: bool = False) -> None:
        """Refused: a mode has no place for the second pass."""
        raise RuntimeError(
            "train() is not for BSAM, which takes two backward passes for each sample; use step(closure), or "
            "`with optimizer.sampled_params(train=True):` with perturb() between the passes"
        )

    def state_dict(self) -> dict[str, Any]:
        """The state as of the last step."""
        if self._moved.are_moved:
            raise RuntimeError("state_dict() inside a training block: the weights are moved; leave the block first")
        return super().state_dict()
