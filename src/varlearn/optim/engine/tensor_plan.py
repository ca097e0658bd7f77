"""A plan made of tensor operations: the rule of `core`, chunk after chunk.

The engines `loop` and `foreach` are this class with different chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from varlearn.core import update
from varlearn.core.memory_order import in_order_of
from varlearn.core.rule import Rule
from varlearn.core.shards import local
from varlearn.optim.engine.plan import Approximation, Fold, Member, Noise, Noises, Row, StepSettings
from varlearn.optim.engine.tensor_operations import all_finite, bounded, fold_in_mean, refresh_mean, scaled


class Chunk(Protocol):
    """Elements that are computed together: a whole parameter, a part of one, or several small ones of one group."""

    @property
    def positions(self) -> Sequence[int]:
        """Of the parameters among the plan's members."""
        ...

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """The chunk's elements of these tensors, one per position, as one tensor; without a copy where possible."""
        ...

    def put(self, tensors: Sequence[Tensor], values: Tensor) -> None:
        """Write values, in the order of `join`, into the chunk's elements of these tensors, by one call."""
        ...

    def spread(self, values: Sequence[float], like: Tensor) -> Tensor | float:
        """One number per position as one number for all, or as a tensor in the order of `join`."""
        ...

    def normals(self, keys: Sequence[int], like: Tensor) -> Tensor:
        """The standard normals of the chunk, in the order of `join` and the dtype of `like`; one key per position."""
        ...


class TensorPlan:
    """A plan of tensor operations.

    The mean is kept in a copy, in the state (float16 and bfloat16 parameters), or nowhere: with memory="lean" the noise
    is made again and subtracted.

    Args:
        engine: name of the engine.
        members: the parameters.
        rule: to compute.
        chunks: that cover all members; each has members of one group only.
        whole: the chunk of each member by itself, for parameters that cannot be computed together in a step.
        before: the plan that this one replaces; its copies of the mean are used again.
    """

    def __init__(
        self,
        engine: str,
        members: Sequence[Member],
        rule: Rule,
        chunks: Sequence[Chunk],
        whole: Sequence[Chunk],
        before: TensorPlan | None = None,
    ) -> None:
        self.engine, self.members, self.converted = engine, list(members), 0
        self._rule, self._chunks, self._whole = rule, chunks, whole
        known = {} if before is None else before._copies
        self._copies = {id(each.param): known[id(each.param)] for each in self.members if id(each.param) in known}
        self._kinds = self._kinds_now()
        self._kept: list[int] = []  # positions whose mean is in a copy or in the state, and must be put back
        self._added: list[tuple[Chunk, int]] = []  # noise to subtract again, with the version before it was added
        # How many there are, and the version before the last of them was subtracted.
        self._removing: tuple[int, int] | None = None
        self._noises: Noises = {}

    def holds(self) -> bool:
        """Whether dtype, device, memory order and the group's wishes are those of the plan."""
        return self._kinds == self._kinds_now()

    def _kinds_now(self) -> list[tuple[object, ...]]:
        kinds: list[tuple[object, ...]] = []
        for param, state, group, _ in self.members:
            parts = [local(param), *(local(state[name]) for name in self._rule.state)]
            wishes = group["foreach"], group["fused"], group["memory"], "mean" in state
            kinds.append((*wishes, *((part.dtype, part.device, part.shape, part.stride()) for part in parts)))
        return kinds

    # The sample

    def draw(self, noises: Noises) -> None:
        """Keep the means and perturb the parameters. If this is interrupted, `restore` puts back what was changed."""
        self._noises, self._removing = noises, None
        kept = [k for k, member in enumerate(self.members) if _keeps_mean(member)]
        for k in kept:
            param, state, _, _ = self.members[k]
            part = local(param)
            if "mean" in state:
                refresh_mean(part, local(state["mean"]))
            else:
                self._copy_of(param, part).copy_(part)
        self._kept = kept
        for chunk in self._chunks:
            if _keeps_mean(self.members[chunk.positions[0]]):
                self._write_sample(chunk, 1.0)
            else:
                # Adding noise twice would lose the mean. The version of the tensor tells whether it was added.
                self._added.append((chunk, self._version(chunk)))
                self._write_sample(chunk, 1.0)

    def restore(self) -> None:
        """Put the means back."""
        while self._added:
            chunk, before = self._added[-1]
            version, count = self._version(chunk), len(self._added)
            was_added = version != before
            was_removed = self._removing is not None and self._removing[0] == count and self._removing[1] != version
            if was_added and not was_removed:
                self._removing = count, version
                self._write_sample(chunk, -1.0)
            self._added.pop()
        for k in self._kept:
            param = self.members[k].param
            part, mean = local(param), self._mean(k)
            part.copy_(mean if part.dtype == mean.dtype else bounded(mean.clone(), part.dtype))
        self._kept = []

    def subtract(self, noises: Noises) -> None:
        """Subtract the noise of a sample that another plan has added."""
        self._noises = noises
        for chunk in self._chunks:
            self._write_sample(chunk, -1.0)

    def _version(self, chunk: Chunk) -> int:
        return local(self.members[chunk.positions[0]].param)._version

    def _write_sample(self, chunk: Chunk, sign: float) -> None:
        group, own = self._of(chunk)
        noise = self._noises[id(group)]
        scales = [self._noises.get(id(member.param), noise).scale for member in own]
        curvatures = [local(member.state[self._rule.curvature]) for member in own]
        hess = chunk.join(curvatures)
        params = places = [local(member.param) for member in own]
        if _keeps_mean(own[0]):
            mean = chunk.join([self._mean(k) for k in chunk.positions])
        else:
            # The memory order may have changed since the noise was added.
            places = [in_order_of(like, param) for like, param in zip(curvatures, params, strict=True)]
            mean = chunk.join(places)
        epsilon = scaled(chunk.normals([noise.of(member).key for member in own], hess), sign * noise.sign)
        std = self._rule.std(hess, *(chunk.spread(values, hess) for values in zip(*scales, strict=True)))
        sample = update.sample(mean, std, epsilon)
        chunk.put(places, bounded(sample, params[0].dtype))
        for param, place in zip(params, places, strict=True):
            if place is not param:
                param.copy_(place)

    def _copy_of(self, param: Tensor, part: Tensor) -> Tensor:
        copy = self._copies.get(id(param))
        if copy is None or copy.shape != part.shape or copy.stride() != part.stride() or copy.dtype != part.dtype:
            with torch.inference_mode(False):
                copy = self._copies[id(param)] = torch.empty_like(part, requires_grad=False)
        return copy

    def _mean(self, position: int) -> Tensor:
        param, state, _, _ = self.members[position]
        return local(state["mean"]) if "mean" in state else self._copies[id(param)]

    def _of(self, chunk: Chunk) -> tuple[dict[str, object], list[Member]]:
        own = [self.members[k] for k in chunk.positions]
        return own[0].group, own

    # The step

    def all_finite(self, rows: Sequence[Row]) -> bool:
        """Whether no gradient and no hhat is NaN or infinite."""
        return all_finite([tensor for _, grad, hhat in rows for tensor in (grad, hhat) if tensor is not None])

    def step(self, rows: Sequence[Row], settings: Sequence[StepSettings], then: Noises | None = None) -> None:
        """Update the mean and the state of each row's parameter, and draw the sample that follows, if any."""
        self.restore()
        self.converted = 0
        by_position: dict[int, tuple[Tensor, Tensor | None, StepSettings]] = {}
        for (k, grad, hhat), its in zip(rows, settings, strict=True):
            by_position[k] = self._in_order(k, grad), None if hhat is None else self._in_order(k, hhat), its
        for chunk in self._chunks:
            if len({_step_kind(self.members[k], by_position.get(k)) for k in chunk.positions}) == 1:
                self._step_chunk(chunk, by_position)
            else:
                for k in chunk.positions:
                    self._step_chunk(self._whole[k], by_position)
        if then is not None:
            self.draw(then)

    def _in_order(self, position: int, values: Tensor) -> Tensor:
        like = local(self.members[position].state[self._rule.curvature])
        ordered = in_order_of(like, values)
        self.converted += ordered is not values
        return ordered

    def _step_chunk(self, chunk: Chunk, rows: dict[int, tuple[Tensor, Tensor | None, StepSettings]]) -> None:
        if chunk.positions[0] not in rows:
            return
        _, own = self._of(chunk)
        grads, hhats, settings = zip(*(rows[k] for k in chunk.positions), strict=True)
        its: StepSettings = settings[0]
        params = [local(member.param) for member in own]
        means = params
        if "mean" in own[0].state:
            means = [local(member.state["mean"]) for member in own]
            for param, mean in zip(params, means, strict=True):
                refresh_mean(param, mean)
        places = [means, *([local(member.state[name]) for member in own] for name in self._rule.state)]
        values = tuple(chunk.join(tensors) for tensors in places)
        hess = values[1 + self._rule.state.index(self._rule.curvature)]
        grad = scaled(chunk.join(grads).to(hess.dtype), its.grad_factor)
        if hhats[0] is None:
            raw = scaled(grad, its.estimate_factor)
            hhat = self._estimate(chunk, own, its.approximation, its.noise, raw, hess)
        else:
            hhat = update.saturate_(chunk.join(hhats).to(hess.dtype, copy=True))
        prior_mean = its.prior_mean
        if "prior_mean" in own[0].state:
            prior_mean = chunk.join([local(member.state["prior_mean"]) for member in own])
        after = self._rule.step(values, scaled(grad, its.clip_factor), hhat, its.hyper, prior_mean)
        bounded(after[0], params[0].dtype)
        for tensors, new in zip(places, after, strict=True):
            chunk.put(tensors, new)
        if means is not params:
            chunk.put(params, after[0])

    def _estimate(
        self,
        chunk: Chunk,
        own: Sequence[Member],
        approximation: Approximation,
        noise: Noise,
        grad: Tensor,
        hess: Tensor,
    ) -> Tensor:
        def epsilon() -> Tensor:
            return scaled(chunk.normals([noise.of(member).key for member in own], hess), noise.sign)

        return self._rule.estimate(approximation, grad, hess, epsilon, *noise.scale)

    def fold(self, folds: Sequence[tuple[int, Fold]]) -> None:
        """Average gradients and hhat with those of earlier samples."""
        for k, each in folds:
            member = self.members[k]
            hess = local(member.state[self._rule.curvature])
            grad = each.grad.to(hess.dtype)
            hhat = self._estimate(self._whole[k], [member], each.approximation, each.noise, grad, hess)
            fold_in_mean(each.estimate_mean, hhat, each.count)
            if each.grad_mean is not None:
                fold_in_mean(each.grad_mean, each.grad, each.count)
                if each.captured is not None:
                    each.captured.copy_(each.grad_mean)


def _keeps_mean(member: Member) -> bool:
    return "mean" in member.state or member.group["memory"] != "lean"


def _step_kind(member: Member, row: tuple[Tensor, Tensor | None, StepSettings] | None) -> tuple[object, ...] | None:
    """What the parameters of a chunk must have in common to be computed together."""
    if row is None:
        return None
    grad, hhat, settings = row
    return grad.dtype, None if hhat is None else hhat.dtype, id(settings), "prior_mean" in member.state
