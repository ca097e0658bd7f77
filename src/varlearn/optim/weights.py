"""Samples go into the weights and come out again; the mean is never lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from varlearn.core.noise import fold_in
from varlearn.core.shards import is_sharded, local, reshard
from varlearn.optim import native_batch, packed_batch, paths, sharded
from varlearn.optim.addresses import Addresses
from varlearn.optim.layout import Companions
from varlearn.optim.roster import Member
from varlearn.optim.tasks import Draw, Noise


class Entry(NamedTuple):
    """One parameter of a sample."""

    param: Tensor
    state: dict[str, Any]
    noise: Noise
    group: dict[str, Any]


class Products(Protocol):
    """What follows a sample through backward."""

    def open(self) -> None:
        """The sample is in the weights."""

    def close(self) -> None:
        """It is out again."""


class Sample:
    """One draw of all trainable parameters: what its noise is, not the numbers.

    Attributes:
        train: whether its gradients are for `step()`.
        members: the parameters that it perturbs.
        draws: id of a group -> the key of the draw, and the scale of sigma.
        products: collects hhat during backward, where ranks draw independent noise.
        is_sharded: whether a parameter is spread over ranks; this rank then draws its part.
    """

    def __init__(self, train: bool, members: Sequence[Member], draws: Mapping[int, Noise]) -> None:
        self.train = train
        self.members = members
        self.draws = draws
        self.products: Products | None = None
        self._entries: dict[int, Entry] = {}  # by id, as far as they were asked for
        self._is_fresh = True
        self.is_sharded = any(member.at is None and is_sharded(member.param) for member in members)

    @property
    def params(self) -> Iterable[Tensor]:
        """The parameters that it perturbs."""
        return (member.param for member in self.members)

    @cached_property
    def addresses(self) -> dict[int, Addresses]:
        """Id of a parameter -> its addresses, where it has them."""
        return {id(member.param): member.at for member in self.members if member.at is not None}

    @cached_property
    def entries(self) -> dict[Tensor, Entry]:
        """Parameter -> its noise. A parameter that is not here was not perturbed."""
        return {member.param: self.entry(member) for member in self.members}

    def meet_again(self) -> None:
        """Before it goes into the weights: not for the first time, and a parameter may have moved since."""
        if self._is_fresh:
            self._is_fresh = False
            return
        self.members = [
            member if member.at is None or member.at.hold() else member._replace(at=None) for member in self.members
        ]

    def entry(self, member: Member) -> Entry:
        """A member's noise."""
        known = self._entries.get(id(member.param))
        if known is None:
            draw = self.draws[id(member.group)]
            noise = sharded.noise(member.param, fold_in(draw.key, member.index), draw.ess, draw.weight_decay)
            known = self._entries[id(member.param)] = Entry(member.param, member.state, noise, member.group)
        return known


class SampledWeights:
    """Which samples are asked for, which one is in the weights, and where the mean is meanwhile.

    Several blocks may be open at once, and may close in any order: the weights hold the youngest open one, and the mean
    when none is left. Noise is a function, so an older sample comes back exactly.

    The mean of a float32 or float64 parameter is copied while a sample is in (`memory="fast"`), or recovered by
    subtracting the same noise again (`memory="lean"`: no copy, and a rounding error of an ulp per draw). A float16 or
    bfloat16 parameter has its mean in `state["mean"]` at all times.
    """

    def __init__(self) -> None:
        self.open: list[Sample] = []
        self._written: Sample | None = None
        self._added: list[Entry] = []  # perturbed in place, without a copy of the mean
        self._kept: list[Entry] = []  # perturbed, the mean is in a copy or in the state
        self._scores = Companions()  # of the last draws
        self._scores_of: tuple[Sample, set[int]] | None = None  # whose score that is, and of which parameters
        self._native = native_batch.Batch([])  # perturbed in one call
        self.packed = packed_batch.Batch([])  # perturbed piece by piece
        self._copies = Companions()

    @property
    def show_training_sample(self) -> bool:
        """Whether the sample in the weights is there for its gradients."""
        return bool(self.open) and self.open[-1].train

    def put_in(self, sample: Sample) -> None:
        """Open a sample and write it into the weights. If this fails, `take_out` restores what was there."""
        self.open.append(sample)
        self._show(sample)
        if sample.products is not None:
            sample.products.open()

    def take_out(self, sample: Sample) -> None:
        """Close a sample: the weights show the youngest one that is still open, or the mean.

        Call it again if it is interrupted: what was done is not done twice.
        """
        if sample in self.open:
            self.open.remove(sample)
        if sample.products is not None:
            sample.products.close()
        self._show(self.open[-1] if self.open else None)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _show(self, sample: Sample | None) -> None:
        if self._written is sample and sample is not None:
            return
        torch.clear_autocast_cache()  # autocast keeps casts of the weights, and would not see them change
        if any(each is not None and each.is_sharded for each in (sample, self._written)):
            reshard()
        self._hide()
        if sample is None:
            return
        self._written = sample
        sample.meet_again()
        kept, copied = [], []
        for entry in [sample.entry(member) for member in sample.members if member.at is None]:
            if "mean" in entry.state:
                refresh_mean(local(entry.param), local(entry.state["mean"]))
                kept.append(entry)
            elif entry.group["memory"] == "lean":
                paths.draw([(entry.group, _in_place(entry))])
                self._added.append(entry)
            else:
                copied.append(entry.param)
                kept.append(entry)
        if copied:
            means = [local(param) for param in copied]
            torch._foreach_copy_(self._copies.of(copied, means), means)
        self._kept = kept
        self._draw_batches(sample)
        self._draw_others(sample)

    def _draw_batches(self, sample: Sample) -> None:
        at = [(member.at, member.group) for member in sample.members if member.at is not None]
        natives, packed = ([each for each in at if each[0].path == path] for path in ("native", "packed"))
        if natives != self._native.members:
            self._native = native_batch.Batch(natives, self._native)
        if packed != self.packed.members:
            self.packed = packed_batch.Batch(packed, self.packed)
        self._native.put_in(sample.draws)
        self.packed.put_in(sample.draws, sample.train)

    def _draw_others(self, sample: Sample) -> None:
        """Those whose mean is kept one by one; for training on the packed path, the scores are kept, too."""
        kept = self._kept
        draws = [Draw(local(e.param), self._mean(e), local(e.state["hess"]), e.noise) for e in kept]
        tasks = [(entry.group, draw) for entry, draw in zip(kept, draws, strict=True)]
        if not sample.train:
            paths.draw(tasks)
            return
        self._scores_of = None
        keeping = [number for number, task in enumerate(tasks) if _keeps_score(*task)]
        params = [kept[number].param for number in keeping]
        for number, score in zip(keeping, self._scores.of(params, [draws[n].hess for n in keeping]), strict=True):
            tasks[number] = kept[number].group, draws[number]._replace(score=score)
        paths.draw(tasks)
        self._scores_of = sample, {id(param) for param in params}

    def _hide(self) -> None:
        while self._added:
            entry = self._added[-1]
            paths.draw([(entry.group, _in_place(entry)._replace(sign=-1.0))])
            self._added.pop()
        if self._kept:
            torch._foreach_copy_([local(e.param) for e in self._kept], [self._mean(e) for e in self._kept])
        self._kept = []
        self._native.take_out()
        self.packed.take_out()
        self._written = None

    def in_batches(self, known: Sequence[Addresses | None]) -> list[Addresses | None]:
        """Of the addresses of a step, those that a batch can take; None for the others."""
        packed = self.packed.complete(at for at in known if at is not None and at.path == "packed")
        return [at if at is None or at.path == "native" or id(at) in packed else None for at in known]

    def score_of(self, sample: Sample, param: Tensor) -> Tensor | None:
        """The score of the last training sample, where its draw kept it."""
        score, part = self.packed.score_of(param, sample.draws), local(param)
        if self._scores_of is not None and self._scores_of[0] is sample and id(param) in self._scores_of[1]:
            score = self._scores[param]
        return score if score is not None and score.shape == part.shape and score.device == part.device else None

    def _mean(self, entry: Entry) -> Tensor:
        return local(entry.state["mean"]) if "mean" in entry.state else self._copies[entry.param]


def _in_place(entry: Entry) -> Draw:
    part = local(entry.param)
    return Draw(part, part, local(entry.state["hess"]), entry.noise)


def _keeps_score(group: dict[str, Any], draw: Draw) -> bool:
    """Where making the noise a second time is most of what a step costs: without a kernel."""
    return group["hess_approx"] == "reparam" and paths.choose(group, draw) == "packed"


def refresh_mean(param: Tensor, mean: Tensor) -> None:
    """Take over what was written into a float16 or bfloat16 parameter from outside; elsewhere keep the finer mean."""
    torch.where(mean.to(param.dtype) == param, mean, param.to(mean.dtype), out=mean)
