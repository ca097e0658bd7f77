"""When a sample is in the weights: inside a block, or between `train()` and `eval()`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from varlearn.core.noise import derive_key, fold_in
from varlearn.optim import hyper
from varlearn.optim.engine.plan import KeyParts, Member, Noise, Noises
from varlearn.optim.engine.triton.capturing import is_capturing
from varlearn.optim.ranks.ranked import Ranked
from varlearn.optim.sampling.gradient_guard import GradientGuard
from varlearn.optim.sampling.members import Members
from varlearn.optim.sampling.sample import Sample
from varlearn.optim.sampling.sample_average import SampleAverage
from varlearn.optim.sampling.sampled_weights import SampledWeights
from varlearn.optim.sampling.thread_lock import ThreadLock
from varlearn.optim.saving import SavedState

# Training and evaluation draw from different streams of the same seed.
_TRAIN, _EVAL = 0, 1


class SamplingBlocks(Ranked, SavedState):
    """The part of a variational optimizer that shows samples in the weights and collects their gradients."""

    def _start(self) -> None:
        """Set up everything that is not saved: nothing of it outlives a step but the memory of the copies."""
        self._lock = ThreadLock()
        self._members = Members(self.rule)
        self._weights = SampledWeights(self._members)
        self._average = SampleAverage(self._members)
        self._guard = GradientGuard(self._weights)
        self._block: Sample | None = None  # of the training block that is open
        self._mode: Sample | None = None  # of train(), until step()
        self._stays = False  # whether train() goes on after a step, with the next sample
        self._last: Sample | None = None  # of a closure; it stays in the weights until its step is done
        self._given: dict[Tensor, Tensor] = {}
        self._eval_draws = 0
        self._has_agreed = False
        self._loading: dict[str, Any] | None = None

    @property
    def is_sampled(self) -> bool:
        """Whether the weights are a sample now, rather than the mean."""
        return bool(self._weights.open)

    @contextmanager
    def sampled_params(self, train: bool = False) -> Iterator[None]:
        """Weights are a sample of the posterior inside the block, and bit for bit the mean after it.

        With memory="lean" it is the mean up to rounding.

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
            self._lock.enter(holder)
            with self._training_block() if train else self._evaluation_block():
                yield
        finally:
            try:
                self._lock.leave(holder)
            except BaseException:  # an interrupt; leaving twice is leaving once
                self._lock.leave(holder)
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
    def _training_block(self, until_step: bool = False) -> Iterator[None]:
        """A training sample is in the weights; with `until_step` it stays there after a block that succeeds."""
        self._refuse_second_sample()
        self._guard.drop_zeroed()
        if not self._average.samples:
            self._average = self._new_average()
        sample = self._sample(train=True)
        before = self._average.set_aside(sample.params)
        self._mode, self._given = None, {}
        try:
            try:
                self._weights.put_in(sample)
                self._block = sample
                yield
                self._last = sample if until_step else None
            finally:
                self._block = None
                if self._last is not sample:
                    try:
                        self._weights.take_out(sample)
                    except BaseException:
                        self._weights.take_out(sample)
                        raise
                elif sample.products is not None:
                    sample.products.close()
        except BaseException:
            self._average.put_back(before)
            raise
        with torch.no_grad():
            self._average.add(sample, self._given)

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

    def train(self, *, stay: bool = False) -> None:
        """Put a training sample into the weights until `step()` or `eval()`: the mode of trainers, without a block.

        One sample serves all micro-batches before a `step()`, whose gradients add up as in ordinary accumulation.

        Args:
            stay: True leaves the mode on after `step()`: the weights are the next training sample at once, and the mean
                after `eval()` only. The native engine draws that sample in the step's own pass over memory, so sample
                and step take 0.7 times as long as with a block. Call `eval()` before you evaluate or save the model.

        >>> from varlearn import IVON
        >>> weight = torch.nn.Parameter(torch.zeros(1))
        >>> opt = IVON([weight], lr=0.1, ess=100.0, seed=0)
        >>> opt.train(stay=True)
        >>> for _ in range(2):
        ...     opt.zero_grad()
        ...     (weight - 1.0).square().sum().backward()
        ...     opt.step()
        >>> opt.is_sampled
        True
        >>> opt.eval()
        >>> opt.is_sampled
        False
        """
        self._stays = stay
        self._enter_mode()

    def _enter_mode(self) -> None:
        if self._block is not None:
            raise RuntimeError(
                "train() inside sampled_params(train=True): the sample is already in; leave out one of them"
            )
        if self._mode is None:
            if self._average.samples:
                raise RuntimeError(
                    f"train() after {len(self._average.samples)} block(s) and before step(): "
                    "use blocks or train()/eval(), not both"
                )
            self._mode = self._sample(train=True)
        if self._mode not in self._weights.open:
            try:
                self._lock.enter(self._mode)  # until eval() or step(): other threads wait as they do for a block
                self._weights.put_in(self._mode)
            except BaseException:
                self.eval()
                raise

    def eval(self) -> None:
        """Put the mean back into the weights. A later `train()` before `step()` goes on with the same sample."""
        self._stays = False
        self._close_mode()

    def _close_mode(self) -> None:
        if self._mode is not None:
            try:
                self._leave_mode(self._mode)
            except BaseException:
                self._leave_mode(self._mode)
                raise

    def _go_on_with(self, sample: Sample) -> None:
        """The weights are this sample since the step: it takes the place of the mode's last one.

        Call it again if it is interrupted.
        """
        self._lock.enter(sample)
        self._weights.replace(sample)
        if self._mode is not None and self._mode is not sample:
            self._lock.leave(self._mode)
        self._drop_samples()
        self._mode = sample

    def _leave_mode(self, sample: Sample) -> None:
        if self._lock.has(sample):  # else it is out, and another thread may be putting its own in
            self._weights.take_out(sample)
        self._lock.leave(sample)

    def _sample(self, train: bool) -> Sample:
        """The next draw: what decides its noise, not the numbers."""
        self._check_groups()
        self._catch_up()
        members = self._members.find(self.param_groups, self.state)
        self._guard.watch([member.param for member in members])
        if train or self._has_shards():  # a single rank may evaluate a model that it alone has
            self._agree()
        noises = self._noises(members, train)
        self._eval_draws += not train
        sample = Sample(train, members, noises)
        if train:
            self._collect_products(sample)
        return sample

    def _noises(self, members: Sequence[Member], train: bool) -> Noises:
        """The noise of each group, with the scale of sigma at this draw."""
        return {id(group): self._noise(group, train) for group in self.param_groups}

    def _noise(self, group: dict[str, Any], train: bool) -> Noise:
        scale = float(group["ess"]), float(group["weight_decay"])
        if not train:
            key = fold_in(derive_key(group["seed"], group["draws"], stream=_EVAL), self._eval_draws)
            return Noise(key, *scale)
        base = fold_in(fold_in(0, group["seed"]), _TRAIN)
        parts = KeyParts(base, group["draws"] + len(self._average.samples), self._replica(group) or 0)
        return Noise(parts.key, *scale, key_parts=parts)

    def _anneal(self) -> None:
        """Follow a schedule that depends on the steps taken, where the optimizer has one."""

    def _catch_up(self) -> None:
        """Learn what replays of a CUDA graph have done, if there is one; the host then waits for the device."""
        if self._members.is_captured and not is_capturing(self._members.device):
            self._settle()

    def _check_groups(self) -> None:
        for group in self.param_groups:
            hyper.check(group)

    def _drop_samples(self) -> None:
        self._average, self._mode, self._eval_draws = SampleAverage(self._members), None, 0
