"""AdaHessian as a `torch.optim.Optimizer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from varlearn.core import adahessian
from varlearn.core.noise import derive_key
from varlearn.optim import hyper
from varlearn.optim.curvature import hutchinson
from varlearn.optim.per_example import add_gradients
from varlearn.optim.point_optimizer import PointOptimizer


class AdaHessian(PointOptimizer):
    r"""AdaHessian (Yao et al., 2021): Adam whose second moment is that of the Hessian's diagonal, after Hutchinson.

    The diagonal needs a second differentiation, which `backward` of this class takes::

        opt = AdaHessian(model.parameters(), lr=0.05)
        for inputs, targets in loader:
            opt.zero_grad()
            opt.backward(loss_fn(model(inputs), targets))
            opt.step()

    There is no averaging over neighbouring weights.

    Args:
        params: parameters, named parameters, or groups of them.
        lr: alpha; 0.05 is the paper's for image classification.
        betas: (beta1, beta2), decays of the averages of the gradient and of the squared diagonal.
        eps: added to the denominator.
        weight_decay: decoupled decay, as AdamW's.
        hessian_power: k. The diagonal's root mean square is raised to it; 1 is Newton's, 0 SGD with momentum.
        seed: of the random signs. None takes `torch.initial_seed()`; nothing is consumed.
        nonfinite: what a NaN or infinite gradient or diagonal does to `step()`: "skip" it, or "raise".
        max_grad_norm: clip the gradient to this norm, and leave the diagonal alone.
        foreach: True for the engine of few large tensor operations, False for the plain loop; None decides.
        maximize: ascend instead of descend.

    >>> weight = torch.nn.Parameter(torch.tensor([2.0, 2.0]))
    >>> opt = AdaHessian([weight], lr=0.2, weight_decay=0.0)
    >>> for _ in range(100):
    ...     opt.zero_grad()
    ...     opt.backward((torch.tensor([0.01, 100.0]) * (weight - 1.0).square()).sum())  # badly scaled
    ...     opt.step()
    >>> bool(((weight - 1.0).abs() < 0.01).all())
    True
    """

    rule = adahessian.RULE

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 0.05,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        hessian_power: float = 1.0,
        seed: int | None = None,
        nonfinite: Literal["skip", "raise"] = "skip",
        max_grad_norm: float | None = None,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = hyper.arguments(locals())
        defaults["seed"] = torch.initial_seed() if seed is None else seed
        hyper.check(defaults)
        super().__init__(params, defaults)

    def _start(self) -> None:
        super()._start()
        self._diagonals: dict[Tensor, Tensor] = {}  # sums over the calls since the last step
        self._calls = 0

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss to `p.grad`, and note the diagonal of its Hessian.

        Several calls before a step are several micro-batches: divide each loss by their number.

        Args:
            loss: a scalar with its graph.
        """
        self._check_groups()
        params = [param for group in self.param_groups for param in group["params"] if param.requires_grad]
        gradients: dict[Tensor, Tensor] = {}
        diagonals = hutchinson(loss, params, self._key(), gradients=gradients)
        add_gradients(gradients)
        self._note(diagonals)

    def hand_in_hess(self, estimates: Mapping[Tensor, Tensor]) -> None:
        """After `loss.backward()`: use these diagonals, of the loss's Hessian, which add up over calls until the step.

        Args:
            estimates: parameter -> D, of its shape.
        """
        self._check_groups()
        known = {id(param) for group in self.param_groups for param in group["params"]}
        for param, estimate in estimates.items():
            if id(param) not in known:
                raise ValueError("hand_in_hess() got a tensor that is not a parameter of this optimizer")
            if estimate.shape != param.shape:
                raise ValueError(f"D of shape {tuple(estimate.shape)} for a parameter of shape {tuple(param.shape)}")
        self._note(dict(estimates))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear `p.grad`, and the diagonals that wait for a step."""
        super().zero_grad(set_to_none)
        self._forget()

    def _note(self, diagonals: Mapping[Tensor, Tensor]) -> None:
        for param, diagonal in diagonals.items():
            known = self._diagonals.get(param)
            self._diagonals[param] = diagonal if known is None else known + diagonal
        self._calls += 1

    def _forget(self) -> None:
        self._diagonals, self._calls = {}, 0

    def _key(self) -> int:
        group = self.param_groups[0]
        return derive_key(group["seed"], group["draws"], replica=self._calls)

    def _estimates(self) -> dict[Tensor, Tensor]:
        params = [param for group in self.param_groups for param in group["params"] if param.grad is not None]
        if not self._calls and any(bool(param.grad.count_nonzero()) for param in params if param.grad is not None):
            raise RuntimeError(
                "step() without the Hessian's diagonal; call optimizer.backward(loss) in place of loss.backward(), or "
                "hand_in_hess(hutchinson(loss, params)) beside it"
            )
        # A loss that is linear in a parameter has curvature zero there.
        return {p: self._diagonals.get(p, torch.zeros_like(p, requires_grad=False)) for p in params}

    def _drop_samples(self) -> None:
        super()._drop_samples()
        self._forget()

    def _hyper(self, group: dict[str, Any], step: int) -> adahessian.Hyper:
        beta1, beta2 = (float(beta) for beta in group["betas"])
        scalars = (float(group["lr"]), beta1, beta2, float(group["eps"]), float(group["weight_decay"]))
        return adahessian.Hyper(*scalars, float(group["hessian_power"]), step)
