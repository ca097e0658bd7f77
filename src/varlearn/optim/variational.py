"""An optimizer whose gradients are taken at samples of the weights: blocks, modes, and what `p.grad` means between."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from varlearn.core.noise import derive_key, fold_in
from varlearn.core.shards import is_sharded, local
from varlearn.optim import agreement, distributed, hyper, sharded, state
from varlearn.optim.agreement import Place
from varlearn.optim.gate import Gate
from varlearn.optim.roster import Roster
from varlearn.optim.saved import SavedState
from varlearn.optim.tasks import Noise
from varlearn.optim.uneven import UnevenInputs
from varlearn.optim.watch import OutsideGradients
from varlearn.optim.weights import Sample, SampledWeights
from varlearn.optim.window import Window

# Training and evaluation draw from different streams of the same seed.
_TRAIN, _EVAL = 0, 1


class VariationalOptimizer(UnevenInputs, SavedState):
    """The part of a variational optimizer that does not depend on its update rule.

    A subclass fills `defaults` with the names that `hyper.check` knows and implements `_update(window)`.
    """

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self._start()
        super().__init__(params, defaults)

    def _start(self) -> None:
        """What is not saved: nothing of it outlives a step but the memory of the copies."""
        self._gate = Gate()
        self._roster = Roster()
        self._weights = SampledWeights()
        self._window = Window()
        self._block: Sample | None = None
        self._mode: Sample | None = None
        self._given: dict[Tensor, Tensor] = {}
        self._eval_draws = 0
        self._step_bytes = 0
        self._has_agreed = False
        self._loading: dict[str, Any] | None = None
        self._outside = OutsideGradients(self._weights)

    @property
    def step_bytes(self) -> int:
        """What the last `step()` handed to a reduction over ranks, on top of the gradients, in bytes per rank.

        One state number for each parameter where ranks draw independent noise; 0 with shared noise or shards.
        """
        return self._step_bytes

    # Sampling

    @property
    def is_sampled(self) -> bool:
        """Whether the weights are a sample now, rather than the mean."""
        return bool(self._weights.open)

    @contextmanager
    def sampled_params(self, train: bool = False) -> Iterator[None]:
        """Weights are a sample of the posterior inside the block, and bit for bit the mean after it.

        Args:
            train: True takes the block's gradients for the next `step()`, as one Monte-Carlo sample. The draws of
                False have their own noise, so evaluating more or less often does not change training.

        >>> from varlearn import IVON
        >>> weight = torch.nn.Parameter(torch.zeros(1))
        >>> opt = IVON([weight], lr=0.1, ess=100.0, seed=0)
        >>> with opt.sampled_params():
        ...     print(weight.item() != 0.0)
        True
        >>> weight.item()
        0.0
        """
        holder = object()
        try:
            self._gate.enter(holder)
            with self._training_block() if train else self._evaluation_block():
                yield
        finally:
            try:
                self._gate.leave(holder)
            except BaseException:  # an interrupt; leaving twice is leaving once
                self._gate.leave(holder)
                raise

    @contextmanager
    def _evaluation_block(self) -> Iterator[None]:
        sample = self._sample(train=False)
        try:
            self._weights.put_in(sample)
            yield
        finally:
            try:
                self._weights.take_out(sample)
            except BaseException:  # an interrupt does not stop the mean from coming back
                self._weights.take_out(sample)
                raise

    @contextmanager
    def _training_block(self) -> Iterator[None]:
        self._refuse_second_sample()
        self._outside.drop_zeroed()
        if not self._window.samples:
            self._window = self._new_window()
        sample = self._sample(train=True)
        before = self._window.set_aside(sample.params)
        self._mode, self._given = None, {}
        try:
            try:
                self._weights.put_in(sample)
                self._block = sample
                yield
            finally:
                self._block = None
                try:
                    self._weights.take_out(sample)
                except BaseException:
                    self._weights.take_out(sample)
                    raise
        except BaseException:
            self._window.put_back(before)
            raise
        with torch.no_grad():
            self._window.add(sample, self._given)

    def _refuse_second_sample(self) -> None:
        if self._block is not None:
            raise RuntimeError(
                "sampled_params(train=True) inside sampled_params(train=True): a gradient belongs to one sample; "
                "close the first block before the second, they are averaged"
            )
        mode_has_gradients = self._mode is not None and any(p.grad is not None for p in self._mode.params)
        if self._mode in self._weights.open or mode_has_gradients:
            raise RuntimeError(
                "sampled_params(train=True) after train() and before step(): the gradients of another sample wait; "
                "use blocks or train()/eval(), not both"
            )

    def train(self) -> None:
        """Put a training sample into the weights until `step()` or `eval()`: the mode of trainers, without a block.

        One sample serves all micro-batches before a `step()`, whose gradients add up as in ordinary accumulation.
        """
        if self._block is not None:
            raise RuntimeError(
                "train() inside sampled_params(train=True): the sample is already in; leave out one of them"
            )
        if self._mode is None:
            if self._window.samples:
                raise RuntimeError(
                    f"train() after {len(self._window.samples)} block(s) and before step(): "
                    "use blocks or train()/eval(), not both"
                )
            self._mode = self._sample(train=True)
        if self._mode not in self._weights.open:
            try:
                self._gate.enter(self._mode)  # until eval() or step(): other threads wait as they do for a block
                self._weights.put_in(self._mode)
            except BaseException:
                self.eval()
                raise

    def eval(self) -> None:
        """Put the mean back into the weights. A later `train()` before `step()` goes on with the same sample."""
        if self._mode is not None:
            self._weights.take_out(self._mode)
            self._gate.leave(self._mode)

    def _sample(self, train: bool) -> Sample:
        """The next draw: its coordinates, not its numbers."""
        self._check_groups()
        members = self._roster.call(self.param_groups, self.state)
        for member in members:
            self._outside.watch(member.param)
        if train or self._has_shards():  # one rank alone may evaluate a model of its own
            self._agree()
        draws = {
            id(group): Noise(self._draw_key(group, train), float(group["ess"]), float(group["weight_decay"]))
            for group in self.param_groups
        }
        self._eval_draws += not train
        sample = Sample(train, members, draws)
        if train and self._is_distributed():
            sample.products = distributed.LocalProducts(sample.entries.values())
        return sample

    def _is_distributed(self) -> bool:
        """Whether ranks draw independent noise, so that products must be averaged and not only gradients."""
        return any(self._replica(group) is not None for group in self.param_groups)

    def _replica(self, group: dict[str, Any]) -> int | None:
        """Which noise this rank draws for a group; None where all ranks draw the same."""
        if agreement.world_size() == 1 or group["noise"] == "shared":
            return None
        # Sharded parameters make one model of the ranks, with one sample.
        return None if self._has_shards() else agreement.rank()

    def _has_shards(self) -> bool:
        return any(is_sharded(param) for group in self.param_groups for param in group["params"])

    def _agree(self) -> None:
        """Before the first sample: all ranks take rank 0's seed. Then any rank's checkpoint serves all ranks."""
        if not self._has_agreed and agreement.world_size() > 1:
            agreement.agree_on_seeds(self.defaults, self.param_groups, self._exchange_device())
            self._has_agreed = True

    def _exchange_device(self) -> torch.device:
        return sharded.device_of(self.param_groups[0]["params"][0])

    def _place(self) -> Place:
        """What all ranks must have in common at a step."""
        states = (self.state.get(param) for group in self.param_groups for param in group["params"])
        step = next((int(state["step"]) for state in states if state and "step" in state), 0)
        shared = (group for group in self.param_groups if self._replica(group) is None)
        return Place(self.param_groups[0]["draws"], step, agreement.seeds_of(shared))

    def _new_window(self) -> Window:
        self._agree()
        if self._is_distributed():
            return distributed.DistributedWindow(self._place(), self._divide_by_all)
        if agreement.world_size() > 1 and not self._has_shards():
            return distributed.SharedWindow(self._place(), self._exchange_device())
        return Window()

    def _draw_key(self, group: dict[str, Any], train: bool) -> int:
        if train:
            draw = group["draws"] + len(self._window.samples)
            return derive_key(group["seed"], draw, replica=self._replica(group) or 0, stream=_TRAIN)
        return fold_in(derive_key(group["seed"], group["draws"], stream=_EVAL), self._eval_draws)

    def _check_groups(self) -> None:
        for group in self.param_groups:
            hyper.check(group)

    # Gradients

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear `p.grad`. Samples that were closed before are kept for `step()`; they are cleared by it."""
        if not set_to_none:
            self._window.detach_from_grads()
        sample = self._block or self._mode
        if sample is not None and isinstance(sample.products, distributed.LocalProducts):
            for param in sample.params:
                sample.products.forget(param)
        super().zero_grad(set_to_none)
        self._window.cleared = bool(self._window.samples)
        self._outside.clear()

    def hand_in_hess(self, estimates: Mapping[Tensor, Tensor]) -> None:
        """Inside a training block: use these hhat, of this sample, instead of the optimizer's own estimate.

        Args:
            estimates: parameter -> hhat, of its shape: a diagonal of the mean loss's Hessian, say from
                `varlearn.optim.curvature`. Parameters that are not here keep the estimate of `hess_approx`.
        """
        if self._block is None:
            raise RuntimeError("hand_in_hess() outside a training block; call it inside sampled_params(train=True)")
        for param, estimate in estimates.items():
            if param not in self._block.entries:
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
            self._gate.enter(holder)
            loss = None if closure is None else self._run(closure)
            window = self._closed_window()
            if window is not None:
                self._drop_samples()
                self._outside.clear()
                for group in self.param_groups:
                    group["draws"] += len(window.samples)
                window.finish()
                self._step_bytes = window.bytes
                self._update(window)
            return loss
        finally:
            self._gate.leave(holder)

    @abstractmethod
    def _update(self, window: Window) -> None:
        """The rule: take the averages of `window` into the state and the weights."""

    def _run(self, closure: Callable[[], Any]) -> Any:
        if self._mode is not None:
            return self._run_in_mode(closure)
        if self._window.samples:
            raise RuntimeError(
                f"step(closure) draws its own samples, and {len(self._window.samples)} block(s) are waiting for a "
                "step(); call step() without a closure first"
            )
        losses = []
        try:
            for _ in range(max(group["mc_samples"] for group in self.param_groups)):
                with self.sampled_params(train=True), torch.enable_grad():
                    losses.append(closure())
        except BaseException:
            self._window = Window()
            raise
        if any(loss is None for loss in losses):
            return None
        if isinstance(losses[0], Tensor):
            return torch.stack([loss.detach() for loss in losses]).mean(0)
        return sum(losses) / len(losses)

    def _run_in_mode(self, closure: Callable[[], Any]) -> Any:
        """After `train()` the closure is the last micro-batch of its sample; Lightning accumulates this way."""
        self.train()
        try:
            with torch.enable_grad():
                loss = closure()
        except BaseException:
            self.eval()
            raise
        return loss.detach() if isinstance(loss, Tensor) else loss

    def _closed_window(self) -> Window | None:
        """The window of this step with all its samples closed, or None where there is nothing to do."""
        if self._block is not None or any(sample is not self._mode for sample in self._weights.open):
            raise RuntimeError("step() inside sampled_params(): the weights are a sample; call it after the block")
        self._check_groups()
        window = self._window
        if self._mode is not None:
            self.eval()
            window = self._new_window()
            window.add(self._mode, {})
        if not window.samples:
            self._refuse_gradients_without_sample()
            return None
        params = [param for group in self.param_groups for param in group["params"] if param.requires_grad]
        self._outside.refuse(param for param in params if not (window.cleared or param in window.grads))
        self._outside.refuse(filter(self._outside.has, params))
        return window

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
                    state.of(self.state, param, group)

    def _drop_samples(self) -> None:
        self._window, self._mode, self._eval_draws = Window(), None, 0

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own hyperparameters; they join at the next sample."""
        if isinstance(param_group, dict) and self.param_groups:
            param_group.setdefault("draws", self.param_groups[0]["draws"])
        count = len(self.param_groups)
        hyper.check_params(param_group)
        super().add_param_group(param_group)
        try:
            hyper.normalize(self.param_groups[-1])
            hyper.check(self.param_groups[-1])
        except Exception:
            del self.param_groups[count:]
            raise
        for param in self.param_groups[-1]["params"]:
            self._outside.watch(param)
