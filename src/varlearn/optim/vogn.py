"""VOGN as a `torch.optim.Optimizer`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from torch import Tensor, nn

from varlearn.core import vogn
from varlearn.optim import hyper
from varlearn.optim.damped import DampedVariational
from varlearn.optim.engine.plan import Member, Noises
from varlearn.optim.per_example import add_gradients, example_gradients


class VOGN(DampedVariational):
    r"""Variational Online Gauss-Newton (Osawa et al., 2019), as Equation 2 of the paper has it.

    As `IVON`, it learns q = N(m, sigma^2) from gradients at samples. The curvature is the mean of the examples' squared
    gradients, which take a separate vectorized backward pass (`backward`), and damping gamma is added to h + delta
    wherever it divides, so 1 / sigma^2 = lambda (h + delta + gamma)::

        opt = VOGN(model.parameters(), lr=0.02, ess=len(dataset))
        for inputs, targets in loader:
            with opt.sampled_params(train=True):
                opt.zero_grad()
                opt.backward(model, loss_fn, inputs, targets)
            opt.step()

    The gradients of examples must exist: no BatchNorm. In several processes average gradients and squares, and use the
    "shared" noise, as the method `vogn` of the command line does.

    Args:
        params: parameters, named parameters, or groups of them.
        lr: alpha. With momentum="sum" the steps add up to 1 / (1 - beta1) times those of an average.
        ess: lambda, the effective sample size; start with the number of training examples.
        hess_init: h0.
        betas: (beta1, beta2), the momenta of the gradient and of the Hessian.
        weight_decay: delta. The prior's precision is ess * weight_decay; it is inside the momentum.
        damping: gamma. 0 leaves it out.
        momentum: "sum" as Equation 2 is printed: g <- beta1 g + ghat + delta m; or "average", IVON's, debiased.
        mc_samples: how many samples `step(closure)` draws; the closure calls `backward` of this class.
        clip_radius: xi, the bound on each entry of the preconditioned gradient.
        rescale_lr: multiply lr by (h0 + delta + gamma).
        prior_mean: m0: None for 0, a number, "init", or tensors; see `IVON`.
        noise: "shared" by all ranks of a process group, or "independent".
        seed: of the noise. None takes `torch.initial_seed()`.
        nonfinite: what a NaN or infinite gradient does to `step()`: "skip" it, or "raise".
        max_grad_norm: clip ghat to this norm, and leave hhat alone.
        memory: "fast" keeps a copy of the mean while a sample is in; "lean" recovers it.
        foreach: True for the engine of few large tensor operations; None decides.
        fused: True for an engine with compiled kernels; this rule has none yet. None decides.
        maximize: ascend instead of descend.

    >>> import torch
    >>> net = nn.Linear(1, 1, bias=False)
    >>> opt = VOGN(net.parameters(), lr=0.02, ess=100.0, weight_decay=0.0, seed=0)
    >>> x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [6.0]])
    >>> for _ in range(300):
    ...     with opt.sampled_params(train=True):
    ...         opt.zero_grad()
    ...         _ = opt.backward(net, nn.functional.mse_loss, x, y)
    ...     opt.step()
    >>> abs(net.weight.item() - 3.0) < 0.2
    True
    """

    rule = vogn.RULE

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
        momentum: Literal["sum", "average"] = "sum",
        mc_samples: int = 1,
        clip_radius: float = math.inf,
        rescale_lr: bool = True,
        prior_mean: float | Literal["init"] | Sequence[Tensor] | Mapping[str, Tensor] | None = None,
        noise: Literal["independent", "shared"] = "shared",
        seed: int | None = None,
        nonfinite: Literal["skip", "raise"] = "skip",
        max_grad_norm: float | None = None,
        memory: Literal["fast", "lean"] = "fast",
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = hyper.arguments(locals(), "seed", "prior_mean")
        defaults["hess_approx"] = "squared_gradient"  # of examples, which are always handed in
        super().__init__(params, defaults, seed, prior_mean)

    def backward(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, Tensor], Tensor],
        inputs: Any,
        targets: Tensor,
        chunk_size: int | None = None,
    ) -> Tensor:
        """Inside a training block: add the mean gradient to `p.grad`, and hand in the squares; one vectorized pass.

        Args:
            model: whose parameters this optimizer has.
            loss_fn: (outputs, targets) -> scalar, a mean over the batch.
            inputs: (B, ...), what the model takes.
            targets: (B, ...).
            chunk_size: how many examples at a time; fewer need less memory.

        Returns:
            The mean loss.
        """
        if self._block is None:
            raise RuntimeError("backward() outside a training block; call it inside sampled_params(train=True)")
        if any(param.grad is not None for param in self._given):
            raise RuntimeError(
                "backward() twice in a training block, which has the squares of one batch; open a block for each "
                "micro-batch, and step() averages them"
            )
        found = example_gradients(model, lambda network, x, y: loss_fn(network(x), y), inputs, targets, chunk_size)
        self.hand_in_hess(found.squares)  # refuses another network before any gradient is changed
        add_gradients(found.mean)
        return found.loss

    def train(self, *, stay: bool = False) -> None:
        """Refused: a mode has no place where the squares could be handed in."""
        raise RuntimeError(
            "train() is not for VOGN, which needs the squared gradients of examples for each sample; use "
            "`with optimizer.sampled_params(train=True): optimizer.backward(model, loss_fn, inputs, targets)`"
        )

    @contextmanager
    def _training_block(self, until_step: bool = False) -> Iterator[None]:
        with super()._training_block(until_step):
            yield
            given = set(self._given)
            lacking = [p for p in self._trainable() if p.grad is not None and p not in given]
            if lacking:
                raise RuntimeError(
                    f"a training block of VOGN ended without the squared gradients of {len(lacking)} parameter(s), the "
                    f"first of shape {tuple(lacking[0].shape)}; call optimizer.backward(model, loss_fn, inputs, "
                    "targets), or hand_in_hess(per_example_gauss_newton(...)) after loss.backward()"
                )

    def _trainable(self) -> list[Tensor]:
        return [param for group in self.param_groups for param in group["params"] if param.requires_grad]

    def _damping_of_precision(self, group: Mapping[str, Any]) -> float:
        return float(group["damping"])

    def _noises(self, members: Sequence[Member], train: bool) -> Noises:
        by_id = {id(group): self._damping_of_precision(group) for group in self.param_groups}
        noises = super()._noises(members, train)
        return {key: each._replace(weight_decay=each.weight_decay + by_id[key]) for key, each in noises.items()}

    def posterior_terms(self, param: Tensor) -> tuple[Tensor, float, float]:
        """(h + gamma, lambda, delta) of a parameter, in IVON's form: 1 / sigma^2 = lambda (h + gamma + delta)."""
        hess, ess, weight_decay = super().posterior_terms(param)
        return hess + self._damping_of_precision(self._group_of(param)), ess, weight_decay
