"""An optimizer whose gradients are taken at samples of the weights, whatever its update rule."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from varlearn.core.dtypes import state_dtype
from varlearn.core.shards import local
from varlearn.optim import hyper, objective, state
from varlearn.optim.sampling.blocks import SamplingBlocks
from varlearn.optim.sampling.sample import Sample, all_members
from varlearn.optim.sampling.sample_average import SampleAverage
from varlearn.optim.stepping import Stepper

# What every variational optimizer has in its groups. A subclass overrides what it takes as an argument.
COMMON: dict[str, Any] = {
    "mc_samples": 1,
    "prior_mean": None,
    "noise": "independent",
    "nonfinite": "skip",
    "max_grad_norm": None,
    "memory": "fast",
    "foreach": None,
    "fused": None,
    "maximize": False,
    "hess_approx": None,
    "draws": 0,
}


class VariationalOptimizer(SamplingBlocks):
    """The part of a variational optimizer that does not depend on its update rule.

    A subclass sets `rule`, passes the hyperparameters that it has as `defaults` ("ess" and "weight_decay" among them,
    which decide sigma), and implements `_hyper`. Only hyperparameters that are in `defaults` are checked.
    """

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._start()
        super().__init__(params, COMMON | {"seed": torch.initial_seed()} | defaults)

    @abstractmethod
    def _hyper(self, group: dict[str, Any], step: int) -> Any:
        """The scalars of the rule for step number `step` (1 is the first) of a parameter group."""

    def _start(self) -> None:
        super()._start()
        self._stepper = Stepper(self.rule, self._hyper)
        self.lr_history = self._stepper.rates
        self._following: Sample | None = None  # that the step has drawn, while it ends
        self._step_bytes = 0
        self._owners: tuple[list[int], dict[int, dict[str, Any]]] = ([], {})  # ids of groups; parameter's id -> group

    @property
    def step_bytes(self) -> int:
        """What the last `step()` handed to a reduction over ranks, on top of the gradients, in bytes per rank.

        One state number for each parameter where ranks draw independent noise; 0 with shared noise or shards.
        """
        return self._step_bytes

    def posterior_terms(self, param: Tensor) -> tuple[Tensor, float, float]:
        """(h, lambda, delta) of a parameter, of which the posterior is made: 1 / sigma^2 = lambda (h + delta)."""
        group, its = self._group_of(param), self.state.get(param, {})
        name = self.rule.curvature
        first = float(group[self.rule.initial[name]]) if name in self.rule.initial else 0.0
        hess = its[name] if name in its else torch.full_like(param, first, dtype=state_dtype(param))
        return hess, float(group["ess"]), float(group["weight_decay"])

    def _group_of(self, param: Tensor) -> dict[str, Any]:
        groups, owners = self._owners
        if groups != list(map(id, self.param_groups)) or id(param) not in owners:
            owners = {id(each): group for group in self.param_groups for each in group["params"]}
            self._owners = list(map(id, self.param_groups)), owners
        return owners[id(param)]

    def kl(self) -> Tensor:
        """KL(q || p) from the prior N(m0, 1/(lambda delta)), summed over trainable parameters, in nats (float64)."""
        return objective.kl(self)

    @property
    def skipped_steps(self) -> int:
        """How many steps were dropped for NaN or infinite gradients, by this object."""
        self._settle()
        return self._stepper.skipped

    def _settle(self) -> None:
        """Count the steps that an accelerator has dropped without telling the host; this waits for the device."""
        self._stepper.count_dropped(self._members.settle())
        self._members.set_draws(self.param_groups, 1 if self._mode is not None else len(self._average.samples))
        self._anneal()

    @property
    def saturated_weights(self) -> int:
        """How many entries of the curvature were started anew, by this object, after a gradient that overflowed it."""
        return self._stepper.saturation.restarted

    # Gradients

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear `p.grad`. Samples that were closed before are kept for `step()`; they are cleared by it."""
        if not set_to_none:
            self._average.detach_from_grads()
        for sample in (self._block, self._mode):
            if sample is not None and sample.products is not None:
                sample.products.forget_all()
        super().zero_grad(set_to_none)
        self._average.cleared = bool(self._average.samples)
        self._guard.clear()

    def hand_in_hess(self, estimates: Mapping[Tensor, Tensor]) -> None:
        """Inside a training block: use these hhat, of this sample, instead of the optimizer's own estimate.

        Args:
            estimates: parameter -> hhat, of its shape: a diagonal of the mean loss's Hessian, say from
                `varlearn.optim.curvature`. Parameters that are not here keep the estimate of `hess_approx`.
        """
        if self._block is None:
            raise RuntimeError("hand_in_hess() outside a training block; call it inside sampled_params(train=True)")
        for param, estimate in estimates.items():
            if param not in self._block:
                raise ValueError("hand_in_hess() got a tensor that is not a trainable parameter of this optimizer")
            if estimate.shape != param.shape:
                raise ValueError(f"hhat of shape {tuple(estimate.shape)} for a parameter of shape {tuple(param.shape)}")
        self._given.update(estimates)

    # The step

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the posterior from the samples since the last step.

        Args:
            closure: computes the loss and calls backward. It is run at `mc_samples` fresh samples; after `train()` once
                at its sample, where gradients of earlier micro-batches may wait.

        Returns:
            The mean of the closure's losses, or None.
        """
        holder = object()
        try:
            self._lock.enter(holder)
            average = None
            draws = closure is not None and self._mode is None and not self._average.samples
            try:
                loss = None if closure is None else self._run(closure)
                average = self._closed_average()
                if average is not None:
                    self._take_step(average)
            finally:
                try:
                    self._end_step(average, draws)
                except BaseException:  # an interrupt; ending twice is ending once
                    self._end_step(average, draws)
                    raise
            if self._stays:
                self._enter_mode()
            return loss
        finally:
            try:
                self._lock.leave(holder)
            except BaseException:
                self._lock.leave(holder)
                raise

    def _take_step(self, average: SampleAverage) -> None:
        self._guard.clear()
        for group in self.param_groups:
            group["draws"] += len(average.samples)
        average.finish()
        self._step_bytes = average.bytes
        plans = self._members.plans(all_members(average.samples))
        scale, overflow = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        last = self._mode
        then = partial(self._next_sample, last) if self._stays and last in self._weights.open else None
        self._following = self._stepper.take(
            average, plans, self.param_groups, self._place, scale, overflow, self._unclip_factor(), then
        )

    def _next_sample(self, last: Sample) -> Sample | None:
        """The sample that a step draws in its own pass; asked for when the step is counted. None: it is drawn after."""
        is_same = self._members.find(self.param_groups, self.state) is last.members
        return self._sample(train=True) if is_same else None

    @property
    def notices_clipping(self) -> bool:
        """Whether `clip_grad_norm_` between backward and `step()` leaves the curvature alone."""
        return False

    def _unclip_factor(self) -> float | Tensor:
        """Multiplies the gradient that the curvature is estimated from; above 1 where the user has clipped it."""
        return 1.0

    def _end_step(self, average: SampleAverage | None, draws: bool) -> None:
        """Close the sample of `train()` or of a closure; forget samples that were used or, by a failed step, drawn."""
        if self._following is not None:
            self._go_on_with(self._following)
            self._following = None
            return
        self._close_mode()
        if self._last is not None:
            self._weights.take_out(self._last)
            self._last = None
        if average is not None:
            self._drop_samples()
        elif draws:
            self._average = SampleAverage(self._members)

    def _run(self, closure: Callable[[], Any]) -> Any:
        if self._mode is not None:
            return self._run_in_mode(closure)
        if self._average.samples:
            raise RuntimeError(
                f"step(closure) draws its own samples, and {len(self._average.samples)} block(s) are waiting for a "
                "step(); call step() without a closure first"
            )
        losses = []
        count = max(group["mc_samples"] for group in self.param_groups)
        for number in range(1, count + 1):
            with self._training_block(until_step=number == count), torch.enable_grad():
                losses.append(closure())
        if any(loss is None for loss in losses):
            return None
        if isinstance(losses[0], Tensor):
            return torch.stack([loss.detach() for loss in losses]).mean(0)
        return sum(losses) / len(losses)

    def _run_in_mode(self, closure: Callable[[], Any]) -> Any:
        """After `train()` the closure is the last micro-batch of its sample; Lightning accumulates this way."""
        self._enter_mode()
        try:
            with torch.enable_grad():
                loss = closure()
        except BaseException:
            self.eval()
            raise
        return loss.detach() if isinstance(loss, Tensor) else loss

    def _closed_average(self) -> SampleAverage | None:
        """The averages of this step with all their samples, or None if there is nothing to do."""
        if self._block is not None or any([each not in (self._mode, self._last) for each in self._weights.open]):
            raise RuntimeError("step() inside sampled_params(): the weights are a sample; call it after the block")
        self._check_groups()
        average = self._average
        if self._mode is not None:
            if self._mode.products is not None:
                self._mode.products.close()
            average = self._new_average()
            average.add(self._mode, {})
        if not average.samples:
            self._refuse_gradients_without_sample()
            return None
        params = [param for group in self.param_groups for param in group["params"] if param.requires_grad]
        self._guard.refuse(params, average)
        return average

    def _refuse_gradients_without_sample(self) -> None:
        with_grad = [
            p for group in self.param_groups for p in group["params"] if p.requires_grad and p.grad is not None
        ]
        grads = [local(p.grad) for p in with_grad]
        if any(bool(grad.count_nonzero()) if grad.layout == torch.strided else True for grad in grads):
            raise RuntimeError(
                "step() without a sample: the gradients were taken at the mean. Run forward and backward inside "
                "`with optimizer.sampled_params(train=True):`, or call optimizer.train() before them"
            )
        # torch.distributed.checkpoint takes a step with zero gradients to see the state.
        for group in self.param_groups:
            for param in group["params"]:
                if param.requires_grad and param.grad is not None:
                    state.of(self.state, param, group, self.rule)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own hyperparameters; they join at the next sample."""
        if isinstance(param_group, dict) and self.param_groups:
            param_group.setdefault("draws", self.param_groups[0]["draws"])
        count = len(self.param_groups)
        hyper.check_params(param_group)
        super().add_param_group(param_group)
        try:
            hyper.drop_duplicates(self.param_groups[-1])
            hyper.normalize(self.param_groups[-1])
            hyper.check(self.param_groups[-1])
        except Exception:
            del self.param_groups[count:]
            raise
        self._guard.watch(self.param_groups[-1]["params"])
