"""A plan that hands whole lists of tensors to the kernels, by address.

A small tensor costs little arithmetic; what takes time is Python, which asks every tensor for its address, dtype and
strides. The plan asks once, writes the answers into tables of 64-bit words (the structures of the C files), and later
checks only that nothing has moved (`holds`). Same noise and same rule as the loop engine, to float32's rounding.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from varlearn.core.memory_order import is_dense, same_order
from varlearn.core.rule import Rule
from varlearn.core.shards import PLAIN
from varlearn.optim.engine import loop
from varlearn.optim.engine.native import scalars
from varlearn.optim.engine.native.rule_kernels import RULES
from varlearn.optim.engine.plan import Fold, Member, Noises, Row, StepSettings
from varlearn.optim.engine.readable_rows import ReadableRows, is_readable
from varlearn.optim.engine.tensor_operations import changed
from varlearn.optim.engine.tensor_places import TensorPlaces

_FLOAT32 = torch.float32
_DRAW_WORDS, _STEP_WORDS, _FOLD_WORDS, _SCALE_FLOATS = 8, 11, 8, 3  # of `Draw`, a rule's step and fold, `Scale`
_LINE = 16  # floats in a cache line: copies of the mean begin on one


def supports(member: Member, rule: Rule) -> bool:
    """Whether the kernels can compute a parameter: plain float32 CPU tensors, dense, in one memory order.

    >>> from varlearn.core.update import RULE
    >>> weight, half = torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16)
    >>> state = {"step": 0, "momentum": torch.zeros(3), "hess": torch.ones(3)}
    >>> supports(Member(weight, state, {}, 0), RULE), supports(Member(half, state | {"mean": weight}, {}, 0), RULE)
    (True, False)
    """
    param, state, _, _ = member
    if rule.name not in RULES or "mean" in state or not is_dense(param):
        return False
    tensors = [param, *(state[name] for name in (*rule.state, "prior_mean") if name in state)]
    return all(
        type(each) in PLAIN and each.dtype is _FLOAT32 and each.is_cpu and same_order(param, each) for each in tensors
    )


class NativePlan:
    """A plan that calls the kernels.

    Attributes:
        is_in: 1 while a sample is in the weights. The kernels turn it over after their last write and cannot be
            interrupted. So a KeyboardInterrupt finds all of a sample in the weights, or nothing of it.
    """

    engine = "native"

    def __init__(
        self, members: Sequence[Member], rule: Rule, kernels: ctypes.CDLL, before: NativePlan | None = None
    ) -> None:
        self.members = list(members)
        self.is_in = ctypes.c_int()
        self._rule, self._kernels, self._its = rule, kernels, RULES[rule.name]
        self._params = [member.param for member in members]
        self._places = TensorPlaces(self.members, rule)
        self._sizes = [param.numel() for param in self._params]
        self._shapes = [param.shape for param in self._params]
        self._readable = ReadableRows(self._params)
        self._noises: Noises = {}
        self._copies, self._copy_places = self._room(None if before is None else before._copies)
        first = self._copies.data_ptr()
        self._kept = [0 if place is None else first + 4 * place for place in self._copy_places]  # addresses
        self._keys = {id(each.group): ctypes.c_uint64() for each in members}
        self._next_keys = {id(each.group): ctypes.c_uint64() for each in members}
        self._scales = (ctypes.c_float * (_SCALE_FLOATS * len(self.members)))()
        self._drawn: list[tuple[float, ...]] = []  # what the scales were made of
        self._draw_words = self._draw_table(self._keys)
        self._step_words = self._step_table()
        self._next_words = self._next_table()

    @property
    def converted(self) -> int:
        """How many gradients of the last step were copied first, into another memory order."""
        return self._readable.converted

    def _room(self, before: Tensor | None) -> tuple[Tensor, list[int | None]]:
        """One block of memory for all copies of the mean (the old one, if it has the right size), and where they begin.

        There is no copy where memory is lean.
        """
        places: list[int | None] = []
        end = 0
        for member, size in zip(self.members, self._sizes, strict=True):
            is_lean = member.group["memory"] == "lean"
            places.append(None if is_lean else end)
            end += 0 if is_lean else -(-size // _LINE) * _LINE
        if before is not None and len(before) == end:
            return before, places
        with torch.inference_mode(False):
            return torch.empty(end, dtype=_FLOAT32, device="cpu"), places

    def _draw_table(self, keys: dict[int, ctypes.c_uint64]) -> array[int]:
        words: list[int] = []
        for k, (param, state, group, index) in enumerate(self.members):
            scale, key = ctypes.addressof(self._scales) + 4 * _SCALE_FLOATS * k, ctypes.addressof(keys[id(group)])
            at, hess = param.data_ptr(), state[self._rule.curvature].data_ptr()
            words += (self._sizes[k], at, at, self._kept[k], hess, index, key, scale)
        return array("Q", words)

    def _step_table(self) -> array[int]:
        """Rows of size 0: a step fills in size, gradient and scalars of the parameters that have a gradient."""
        words: list[int] = []
        for param, state, group, index in self.members:
            key = ctypes.addressof(self._keys[id(group)])
            at, prior = param.data_ptr(), state.get("prior_mean")
            tensors = (state[name].data_ptr() for name in self._rule.state)
            words += (0, at, at, *tensors, 0, 0, 0 if prior is None else prior.data_ptr(), index, key, 0)
        return array("Q", words)

    def _next_table(self) -> array[int]:
        """Draws that find the mean in its copy, where a step has written it."""
        words = self._draw_table(self._next_keys)
        for k, kept in enumerate(self._kept):
            words[_DRAW_WORDS * k + 2], words[_DRAW_WORDS * k + 3] = kept, 0
        return words

    # Whether anything has changed

    def holds(self) -> bool:
        """Whether every tensor is where it was: it can be moved, cast, resized or replaced behind its name."""
        return self._places.are_same()

    # The sample

    def draw(self, noises: Noises) -> None:
        """Keep the means and perturb the parameters, in one call."""
        self._prepare(noises, self._keys)
        self._run("varlearn_draw", self._draw_words, _DRAW_WORDS, self.is_in)
        changed(self._params)

    def _prepare(self, noises: Noises, keys: dict[int, ctypes.c_uint64]) -> None:
        self._noises = noises
        for group, key in keys.items():
            key.value = noises[group].key
        self._set_scales(noises)

    def _set_scales(self, noises: Noises) -> None:
        """Write the scale of sigma of each parameter, unless all are those of the last draw."""
        own = [noises.get(id(param)) or noises[id(group)] for param, _, group, _ in self.members]
        drawn = [(ess, decay, sign) for _, ess, decay, sign, _ in own]
        if drawn != self._drawn:
            self._scales[:] = scalars.of_draws(drawn)
            self._drawn = drawn

    def restore(self) -> None:
        """Put the means back, in one call."""
        if not self.is_in.value:
            return
        words, moved = self._draw_words, self._places.moved()
        if moved:
            words = words[:]
            for k in moved:
                self._restore_elsewhere(k)
                words[_DRAW_WORDS * k] = 0
        self._run("varlearn_restore", words, _DRAW_WORDS, self.is_in)
        changed(self._params)

    def _restore_elsewhere(self, k: int) -> None:
        """Put back the mean of a parameter whose memory was replaced while the sample was in it."""
        place = self._copy_places[k]
        if place is None:
            loop.plan([self.members[k]], self._rule).subtract(self._noises)
        else:
            copy = self._copies[place : place + self._sizes[k]]
            self._params[k].copy_(copy.as_strided(self._shapes[k], self._places.params[k][2]))

    # The step

    def all_finite(self, rows: Sequence[Row]) -> bool:
        """Whether no gradient and no hhat is NaN or infinite."""
        words: list[int] = []
        for (k, _, _), (grad, hhat) in zip(rows, self._readable.of(rows), strict=True):
            words += (self._sizes[k], grad.data_ptr())
            if hhat is not None:
                words += (self._sizes[k], hhat.data_ptr())
        finite = ctypes.c_int()
        self._run("varlearn_check", array("Q", words), 2, finite)
        return bool(finite.value)

    def step(self, rows: Sequence[Row], settings: Sequence[StepSettings], then: Noises | None = None) -> None:
        """Update the parameters, in one call. While a sample is in the weights, the means are read from the copies.

        If another sample follows (`then`), the new means go into the copies and the sample into the weights, in the
        same pass over memory.
        """
        if None in self._copy_places:
            self.restore()
        from_copies = bool(self.is_in.value)
        to_copies = from_copies and then is not None
        if from_copies and not to_copies and len(rows) < len(self.members):
            self._restore_others({k for k, _, _ in rows})
        words = self._step_words[:]
        structures: dict[int, ctypes.Structure] = {}  # alive until the kernel has read them
        readable = self._readable.of(rows)
        self._readable.forget()
        for (k, _, _), (grad, hhat), its in zip(rows, readable, settings, strict=True):
            kind = id(its) if hhat is None else -id(its)
            if kind not in structures:
                structures[kind] = self._its.step_scalars(its, hhat is not None)
                self._keys[id(self.members[k].group)].value = its.noise.key
            row = _STEP_WORDS * k
            words[row] = self._sizes[k]
            if from_copies:
                words[row + 2] = self._kept[k]
            if to_copies:
                words[row + 1] = self._kept[k]
            words[row + 5] = grad.data_ptr()
            if hhat is not None:
                words[row + 6] = hhat.data_ptr()
            words[row + 10] = ctypes.addressof(structures[kind])
        if to_copies and then is not None:
            self._prepare(then, self._next_keys)
            self._run(self._its.step, words, _STEP_WORDS, None, self._next_words)
            changed(self._params)
            return
        self._run(self._its.step, words, _STEP_WORDS, self.is_in if from_copies else None)
        changed([self._params[k] for k, _, _ in rows])
        if then is not None:
            self.draw(then)

    def _restore_others(self, stepped: set[int]) -> None:
        """Put back the means of the parameters that a step leaves out."""
        words = self._draw_words[:]
        for k in stepped:
            words[_DRAW_WORDS * k] = 0
        self._run("varlearn_restore", words, _DRAW_WORDS, None)
        changed(self._params)

    def fold(self, folds: Sequence[tuple[int, Fold]]) -> None:
        """Average gradients and hhat with those of earlier samples."""
        words: list[int] = []
        structures: dict[tuple[object, ...], ctypes.Structure] = {}
        others: list[tuple[int, Fold]] = []
        for k, each in folds:
            noise = each.noise
            tensors = [each.grad, each.grad_mean, each.captured, each.estimate_mean]
            if not all(t is None or is_readable(t, self._params[k]) for t in tensors):
                others.append((k, each))
                continue
            kind = (noise, each.approximation, each.count)
            if kind not in structures:
                structures[kind] = self._its.fold_scalars(each)
            addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
            hess = self.members[k].state[self._rule.curvature].data_ptr()
            key = noise.of(self.members[k]).key
            words += (self._sizes[k], *addresses, hess, key, ctypes.addressof(structures[kind]))
        self._run(self._its.fold, array("Q", words), _FOLD_WORDS, None)
        changed([each.grad_mean for _, each in folds if each.grad_mean is not None])
        if others:
            loop.plan(self.members, self._rule).fold(others)

    def _run(
        self, kernel: str, words: array[int], width: int, done: ctypes.c_int | None, then: array[int] | None = None
    ) -> None:
        """Call a kernel with a table, the number of threads that PyTorch uses, and where to say that it is done.

        `then`: a table of draws, one for each row, that follow in the same pass.
        """
        address, count = words.buffer_info()
        next_address = None if then is None else then.buffer_info()[0]
        answer = None if done is None else ctypes.addressof(done)
        getattr(self._kernels, kernel)(address, next_address, count // width, torch.get_num_threads(), answer)
