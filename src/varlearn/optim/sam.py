"""Sharpness-aware minimization as a `torch.optim.Optimizer`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from varlearn.core import sam
from varlearn.core.shards import local
from varlearn.optim import hyper
from varlearn.optim.moved_weights import MovedWeights
from varlearn.optim.point_optimizer import PointOptimizer
from varlearn.optim.ranks.fsdp import combined
from varlearn.optim.sampling.sample_average import SampleAverage


class SAM(PointOptimizer):
    r"""Sharpness-aware minimization (Foret et al., 2021), with SGD's step. Each step takes two backward passes.

    With a closure, which is called twice::

        opt.step(closure)

    Without one, both passes are in one block::

        with opt.two_passes():
            loss_fn(model(inputs), targets).backward()
            opt.perturb()  # weights are now w + rho g / |g|, gradients are cleared
            loss_fn(model(inputs), targets).backward()
        opt.step()

    Several blocks before a step add up, and each has its own perturbation (m-sharpness): divide the loss by their
    number.

    Args:
        params: parameters, named parameters, or groups of them.
        lr: SGD's learning rate.
        rho: length of the perturbation, over all parameters.
        beta1: SGD's momentum.
        weight_decay: SGD's L2 penalty.
        nonfinite: what a NaN or infinite gradient does to `step()`: "skip" it, or "raise".
        max_grad_norm: clip the second gradient to this norm.
        foreach: True for the engine of few large tensor operations, False for the plain loop; None decides.
        maximize: ascend instead of descend.

    >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> opt = SAM([weight], lr=0.1, rho=0.5, beta1=0.0)
    >>> with opt.two_passes():
    ...     (0.5 * weight.square().sum()).backward()
    ...     opt.perturb()
    ...     weight.detach().tolist()  # 0.5 along (3, 4) / 5
    ...     (0.5 * weight.square().sum()).backward()
    [3.299..., 4.400...]
    >>> opt.step()
    >>> weight  # moved by 0.1 times the gradient there, which is (3.3, 4.4)
    Parameter containing:
    tensor([2.6700, 3.5600], requires_grad=True)
    """

    rule = sam.RULE

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 0.1,
        *,
        rho: float = 0.05,
        beta1: float = 0.9,
        weight_decay: float = 0.0,
        nonfinite: Literal["skip", "raise"] = "skip",
        max_grad_norm: float | None = None,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = hyper.arguments(locals(), "beta1")
        defaults["betas"] = beta1, 0.0  # the form that schedulers of the momentum know; the second is not read
        hyper.check(defaults)
        super().__init__(params, defaults)

    def _start(self) -> None:
        super()._start()
        self._moved = MovedWeights()
        self._in_block = self._has_perturbed = False
        self._aside: dict[Tensor, Tensor | None] = {}  # gradients of earlier blocks, while one is open
        self._passes = 0  # blocks since the last step

    @contextmanager
    def two_passes(self) -> Iterator[None]:
        """Both backward passes of a perturbation, with `perturb()` between them; the weights are back afterwards."""
        if self._in_block:
            raise RuntimeError("two_passes() inside two_passes(): close the first block before the second, they add up")
        self._check_groups()
        params = self._trainable()
        self._aside = before = {param: param.grad for param in params}
        for param in params:
            param.grad = None
        self._in_block, self._has_perturbed = True, False
        try:
            try:
                yield
                if not self._has_perturbed and any(param.grad is not None for param in params):
                    raise RuntimeError(
                        "two_passes() ended without a second pass; call perturb() after the first backward, then "
                        "backward again"
                    )
            finally:
                self._in_block = False
                try:
                    self._moved.put_back()
                except BaseException:  # an interrupt does not stop the weights from coming back
                    self._moved.put_back()
                    raise
        except BaseException:
            for param, grad in before.items():
                param.grad = grad
            raise
        for param, grad in self._aside.items():
            if grad is not None:
                param.grad = grad if param.grad is None else grad + param.grad
        self._passes += 1

    @torch.no_grad()
    def perturb(self) -> None:
        """Between the two passes: move the weights by rho g / |g|, and clear the gradients g."""
        if not self._in_block or self._has_perturbed:
            found = "twice in a block" if self._has_perturbed and self._in_block else "outside of two_passes()"
            raise RuntimeError(f"perturb() {found}; call it once, between the two backward passes")
        self._has_perturbed = True
        owned = [(p, group) for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = self._norm([param for param, _ in owned])
        changes = []
        for param, group in owned:
            sign = -1.0 if group["maximize"] else 1.0
            changes.append((param, param.grad * (sign * float(group["rho"]) / (norm + 1e-12))))
            param.grad = None
        self._moved.move(changes)

    @staticmethod
    def _norm(params: list[Tensor]) -> float:
        """The norm of all gradients together, of sharded parameters over all ranks."""
        if not params:
            return 0.0
        squares = [local(p.grad).to(torch.float64).square().sum().cpu() for p in params if p.grad is not None]
        return math.sqrt(float(combined(params, torch.stack(squares).view(-1, 1), "sum")))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear `p.grad`, inside a block those of earlier blocks too."""
        super().zero_grad(set_to_none)
        self._aside, self._passes = {}, 0

    def state_dict(self) -> dict[str, Any]:
        """The state as of the last step."""
        if self._moved.are_moved:
            raise RuntimeError("state_dict() inside two_passes(): the weights are moved; leave the block first")
        return super().state_dict()

    def _trainable(self) -> list[Tensor]:
        return [param for group in self.param_groups for param in group["params"] if param.requires_grad]

    def _run(self, closure: Callable[[], Any]) -> Any:
        with self.two_passes(), torch.enable_grad():
            loss = closure()
            self.perturb()
            closure()
        return loss.detach() if isinstance(loss, Tensor) else loss

    def _closed_average(self) -> SampleAverage | None:
        if self._in_block:
            raise RuntimeError("step() inside two_passes(): the weights are moved; call it after the block")
        if not self._passes and any(p.grad is not None and bool(p.grad.count_nonzero()) for p in self._trainable()):
            raise RuntimeError(
                "step() without a second pass; run both backward passes in `with optimizer.two_passes():` with "
                "perturb() between them, or call step(closure)"
            )
        return super()._closed_average()

    def _drop_samples(self) -> None:
        super()._drop_samples()
        self._passes = 0

    def _hyper(self, group: dict[str, Any], step: int) -> sam.Hyper:
        return sam.Hyper(float(group["lr"]), float(group["weight_decay"]), float(group["betas"][0]))
