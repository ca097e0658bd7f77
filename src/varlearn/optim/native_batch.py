"""The parameters of an optimizer that take the native path: a whole list of tensors goes to C in one call."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from varlearn.core.noise import fold_in
from varlearn.optim import loop, native, native_scalars
from varlearn.optim.addresses import Addresses, Row
from varlearn.optim.tasks import Draw, Noise

_FLOAT32 = torch.float32
_WORDS = 8  # of a Draw in native.c
_LINE = 16  # floats in a cache line: copies begin on one


class Batch:
    """Puts a sample into the parameters of a list, and takes it out again, in one call each.

    Attributes:
        members: what is in the list, with the group of each.
        is_in: 1 while a sample is in the weights. The kernels turn it over with their last write and cannot be
            interrupted, so a KeyboardInterrupt finds all of the sample in the weights, or nothing of it.
    """

    def __init__(self, members: Sequence[tuple[Addresses, dict[str, Any]]], before: Batch | None = None) -> None:
        self.members = list(members)
        self.is_in = ctypes.c_int()
        self._params = [each.param for each, _ in members]
        self._noises: Mapping[int, Noise] = {}
        self._copies = self._room(None if before is None else before._copies)
        self._scales = {id(group): (native_scalars.Scale(), ctypes.c_uint64()) for _, group in members}
        self._words = self._layout()

    def _room(self, before: Tensor | None) -> Tensor:
        """One block of memory for all copies of the mean; the one from before, if it has the right size."""
        size = sum(_padded(each.size) for each, _ in self.members if not each.is_lean)
        return before if before is not None and len(before) == size else torch.empty(size, dtype=_FLOAT32)

    def _layout(self) -> array[int]:
        words: list[int] = []
        for (each, group), copy in zip(self.members, self._places(), strict=True):
            scale, key = (ctypes.addressof(value) for value in self._scales[id(group)])
            at = each.at_param
            kept = 0 if copy is None else self._copies.data_ptr() + 4 * copy
            words += (each.size, at, at, kept, each.at_hess, each.index, key, scale)
        return array("Q", words)

    def _places(self) -> list[int | None]:
        """Where in the copies each mean begins; None where there is no copy."""
        places: list[int | None] = []
        end = 0
        for each, _ in self.members:
            places.append(None if each.is_lean else end)
            end += 0 if each.is_lean else _padded(each.size)
        return places

    def put_in(self, noises: Mapping[int, Noise]) -> None:
        """Keep the means and perturb the parameters.

        Args:
            noises: id of a group -> key of the draw, to which each parameter's index is added, and the scale of sigma.
        """
        if not self.members:
            return
        self._noises = noises
        for group, (scale, key) in self._scales.items():
            noise = noises[group]
            key.value = noise.key
            ctypes.pointer(scale)[0] = native_scalars.of_draw(noise, 1.0)
        self._run(native.load().varlearn_draw, self._words)

    def take_out(self) -> None:
        """Put the means back. Call it again if it is interrupted; without a sample it does nothing."""
        if not self.is_in.value:
            return
        words = self._words
        if not all(each.hold_param() for each, _ in self.members):
            words = array("Q")
            for at, place in enumerate(self._places()):
                if self.members[at][0].hold_param():
                    words += self._words[_WORDS * at : _WORDS * (at + 1)]
                else:
                    self._put_back_elsewhere(*self.members[at], place)
        self._run(native.load().varlearn_restore, words)

    def _put_back_elsewhere(self, each: Addresses, group: dict[str, Any], place: int | None) -> None:
        """Of a parameter whose memory was exchanged while the sample was in."""
        if place is not None:
            copy = self._copies[place : place + each.size]
            each.param.copy_(copy.as_strided(each.shape, each.stride))
        else:
            noise = self._noises[id(group)]
            key = fold_in(noise.key, each.index)
            loop.draw([Draw(each.param, each.param, each.state["hess"], noise._replace(key=key), sign=-1.0)])

    def _run(self, kernel: Callable[..., None], words: array[int]) -> None:
        at, count = words.buffer_info()
        kernel(at, count // _WORDS, torch.get_num_threads(), ctypes.addressof(self.is_in))
        native.changed(self._params)


def all_finite(rows: Iterable[tuple[Addresses, Tensor]]) -> bool:
    """Whether no gradient has a NaN or an infinity."""
    words: list[int] = []
    for each, grad in rows:
        words += (each.size, grad.data_ptr())
    return not words or native.check(words)


def step(rows: Sequence[Row]) -> None:
    """Update each parameter (lines 3 to 7)."""
    if not rows:
        return
    words: list[int] = []
    scalars: list[tuple[native_scalars.Hyper, ctypes.c_uint64]] = []  # alive until the kernel has read them
    last, hyper, key = None, 0, 0
    for each, grad, kind in rows:
        if kind is not last:
            scalars.append((native_scalars.of_step(kind, float(kind.prior_mean)), ctypes.c_uint64(kind.noise.key)))
            hyper, key = (ctypes.addressof(value) for value in scalars[-1])
            last = kind
        at = each.at_param, each.at_momentum, each.at_hess
        words += (each.size, *at, grad.data_ptr(), 0, 0, each.index, key, hyper)
    native.call(native.load().varlearn_step, words, 10)
    native.changed([each.param for each, _, _ in rows])


def _padded(size: int) -> int:
    return -(-size // _LINE) * _LINE
