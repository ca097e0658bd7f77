"""Samples go into the weights and come out again; the mean is never lost."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from varlearn.optim import paths
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
        entries: parameter -> its noise. A parameter that is not here was not perturbed.
        products: collects hhat during backward, where ranks draw independent noise.
    """

    def __init__(self, train: bool, entries: list[Entry], products: Products | None = None) -> None:
        self.train = train
        self.entries = {entry.param: entry for entry in entries}
        self.products = products


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
        self._fused: tuple[list[Tensor], list[Tensor]] = ([], [])  # copied and perturbed in one call, over when _done
        self._done = ctypes.c_int()
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}  # by id: hashing a tensor is ten times slower

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
        self._hide()
        if sample is None:
            return
        self._written = sample
        fused, kept, tasks, copies = [], [], [], []
        for entry in sample.entries.values():
            if "mean" in entry.state:
                refresh_mean(entry.param, entry.state["mean"])
                kept.append(entry)
            elif entry.group["memory"] == "lean":
                paths.draw([(entry.group, _in_place(entry))])
                self._added.append(entry)
            elif paths.is_native(entry.group, task := _in_place(entry)):
                fused.append(entry.param)
                tasks.append(task)
                copies.append(self._copy_of(entry.param))
            else:
                self._copy_of(entry.param).copy_(entry.param)
                kept.append(entry)
        self._kept, self._fused = kept, (fused, copies)
        paths.keep_and_draw(tasks, copies, self._done)
        paths.draw([(entry.group, _in_place(entry)._replace(mean=self._mean(entry))) for entry in kept])

    def _hide(self) -> None:
        while self._added:
            entry = self._added[-1]
            paths.draw([(entry.group, _in_place(entry)._replace(sign=-1.0))])
            self._added.pop()
        for entry in self._kept:
            entry.param.copy_(self._mean(entry))
        self._kept = []
        if self._done.value:
            paths.restore(*self._fused)
            self._done.value = 0
        self._written = None

    def _mean(self, entry: Entry) -> Tensor:
        return entry.state["mean"] if "mean" in entry.state else self._copies[id(entry.param)][1]

    def _copy_of(self, param: Tensor) -> Tensor:
        known = self._copies.get(id(param))
        if known is None or not _same_layout(known[1], param):
            known = self._copies[id(param)] = param, torch.empty_like(param, requires_grad=False)
        return known[1]


def _in_place(entry: Entry) -> Draw:
    return Draw(entry.param, entry.param, entry.state["hess"], entry.noise)


def refresh_mean(param: Tensor, mean: Tensor) -> None:
    """Take over what was written into a float16 or bfloat16 parameter from outside; elsewhere keep the finer mean."""
    torch.where(mean.to(param.dtype) == param, mean, param.to(mean.dtype), out=mean)


def _same_layout(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype and a.device == b.device
