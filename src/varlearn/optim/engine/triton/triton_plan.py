"""A plan that launches the Triton kernels on whole lists of parameters, without waiting for the device.

As in the native plan, everything that the kernels need to know of a parameter is written into a table once. A step
fills in the gradients. The tables are copied to the device when they have changed, and no number comes back, except
where the caller asks for one (`all_finite`, `settle`).

The device counts steps and samples by itself, so a CUDA graph can capture them: each replay is a further step with
fresh noise.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from varlearn.core.noise import signed
from varlearn.core.rule import Rule
from varlearn.core.shards import local, place
from varlearn.optim.engine import loop
from varlearn.optim.engine.plan import Fold, Guard, Member, Noises, Row, StepSettings
from varlearn.optim.engine.readable_rows import ReadableRows
from varlearn.optim.engine.tensor_operations import changed
from varlearn.optim.engine.tensor_places import TensorPlaces
from varlearn.optim.engine.triton import capturing, sample_kernels, step_kernels
from varlearn.optim.engine.triton import row_layout as at
from varlearn.optim.engine.triton.device_tables import DeviceTable
from varlearn.optim.engine.triton.fold_launch import FoldLaunch
from varlearn.optim.engine.triton.launching import Launcher
from varlearn.optim.engine.triton.rule_launches import DTYPES, HOW, LAUNCHES, floats_of
from varlearn.optim.engine.triton.sample_tables import SampleTables
from varlearn.optim.engine.triton.step_count import StepCount

_LINE = 32  # floats in a line of memory of 128 bytes: copies of the mean begin on one


class TritonPlan:
    """A plan that launches the kernels, for parameters on one device.

    Attributes:
        is_in: whether a sample may be in the weights. The marks of the blocks say where it is.
    """

    engine = "triton"

    def __init__(self, members: Sequence[Member], rule: Rule, before: TritonPlan | None = None) -> None:
        self.members, self.converted = list(members), 0
        self.is_in = False
        self._rule, self._its = rule, LAUNCHES[rule.name]
        self._parts = [local(member.param) for member in members]
        self._places = TensorPlaces(self.members, rule)
        self._sizes = [part.numel() for part in self._parts]
        self._shapes = [part.shape for part in self._parts]
        self._kinds = [(part.dtype, _keep(member)) for part, member in zip(self._parts, members, strict=True)]
        self._noises: Noises = {}
        self._number = 1  # of the last draw; the marks begin at 0, so that none is in
        self._readable = ReadableRows(self._parts, DTYPES)
        self._groups = {id(group): k for k, group in enumerate({id(m.group): m.group for m in members}.values())}
        self._device = device = self._parts[0].device
        self._launcher = Launcher(self._sizes, device)
        self._positions: dict[tuple[torch.dtype, int], list[int]] = {}
        for k, kind in enumerate(self._kinds):
            self._positions.setdefault(kind, []).append(k)
        with torch.inference_mode(False):
            self._copies, self._copy_places = self._room(device, None if before is None else before._copies)
            self._marks = torch.zeros(self._launcher.count, dtype=torch.int32, device=device)
            self._clock = torch.zeros(2 + at.CLOCK * len(members), dtype=torch.float32, device=device)
            self._found = torch.zeros(1, dtype=torch.int32, device=device)
            self._zero, self._one = self._clock.new_zeros(1), self._clock.new_ones(1)
        self._words = self._row_words()
        self._draw_rows, self._step_rows = DeviceTable(torch.int64, device), DeviceTable(torch.int64, device)
        self._scalars, self._facts = DeviceTable(torch.float32, device), DeviceTable(torch.float64, device)
        self._count = StepCount(self.members, device)
        how = self._its.scaling, self._count, device
        self._samples = SampleTables(self.members, self._groups, self._launcher, *how)
        self._sample_tables = (self._clock, self._clock)  # of the sample that is in
        self._folds = FoldLaunch(self._launcher, self._parts, self._words)

    def _room(self, device: torch.device, before: Tensor | None) -> tuple[Tensor, list[int | None]]:
        """One block of memory for all copies of the mean (the old one, if it fits), and where they begin."""
        places: list[int | None] = []
        end = 0
        for (_, keep), size in zip(self._kinds, self._sizes, strict=True):
            places.append(end if keep == at.COPY else None)
            end += -(-size // _LINE) * _LINE if keep == at.COPY else 0
        if before is not None and len(before) == end and before.device == device:
            return before, places
        return torch.empty(end, dtype=torch.float32, device=device), places

    def _row_words(self) -> array[int]:
        """The rows of all members, without gradients."""
        words: list[int] = []
        for k, (param, state, group, index) in enumerate(self.members):
            row = [0] * at.WORDS
            row[at.SIZE], row[at.PARAM] = self._sizes[k], self._parts[k].data_ptr()
            mean, copy, prior = state.get("mean"), self._copy_places[k], state.get("prior_mean")
            if mean is not None:
                row[at.MEAN] = local(mean).data_ptr()
            elif copy is not None:
                row[at.MEAN] = self._copies.data_ptr() + 4 * copy
            row[at.FIRST], row[at.CURVATURE] = (local(state[name]).data_ptr() for name in self._rule.state)
            row[at.PRIOR] = 0 if prior is None else local(prior).data_ptr()
            row[at.INDEX], row[at.GROUP], row[at.SHIFT] = index, self._groups[id(group)], signed(place(param, 0)[0])
            row[at.MARK], row[at.ALIGNED] = self._launcher.first[k], at.are_aligned(row)
            words += row
        return array("q", words)

    def holds(self) -> bool:
        """Whether every tensor is where it was: it can be moved, cast, resized or replaced behind its name."""
        return self._places.are_same()

    # The sample

    def draw(self, noises: Noises) -> None:
        """Keep the means and perturb the parameters, in one launch for each dtype and way to keep the mean."""
        self._noises, self._number = noises, self._number % (2**31 - 1) + 1
        self._sample_tables = self._samples.of(noises)
        self.is_in = True
        self._launch_sample(sample_kernels.draw, self._words)

    def restore(self) -> None:
        """Put the means back. Blocks that the draw has not reached, or that were restored, are left alone."""
        if not self.is_in:
            return
        words, moved = self._words, self._places.moved()
        if moved:
            words = words[:]
            for k in moved:
                self._restore_elsewhere(k)
                words[at.WORDS * k + at.SIZE] = 0
        self._launch_sample(sample_kernels.restore, words)
        self.is_in = False

    def _restore_elsewhere(self, k: int) -> None:
        """Put back the mean of a parameter whose memory was replaced while the sample was in it."""
        copy, member = self._copy_places[k], self.members[k]
        if "mean" in member.state:
            local(member.param).copy_(local(member.state["mean"]))
        elif copy is None:
            loop.plan([member], self._rule).subtract(self._noises)
        else:
            flat = self._copies[copy : copy + self._sizes[k]]
            local(member.param).copy_(flat.as_strided(self._shapes[k], self._places.params[k][2]))

    def _launch_sample(self, kernel: Any, words: array[int]) -> None:
        self._draw_rows.write(words)
        tables = *self._sample_tables, self._marks, self._number
        for (dtype, keep), positions in self._positions.items():
            self._launcher.run(kernel, self._draw_rows, positions, *tables, DTYPE=DTYPES[dtype], KEEP=keep)
        changed(self._parts)

    # The step

    def all_finite(self, rows: Sequence[Row]) -> bool:
        """Whether no gradient and no hhat is NaN or infinite. The host waits for the answer."""
        self._step_rows.write(self._words_of(rows))
        self._look(rows)
        return not bool(self._found.item())

    def _look(self, rows: Sequence[Row]) -> None:
        """Set `_found` to whether a number in the rows of the table is not finite."""
        kinds: dict[tuple[torch.dtype, bool], list[int]] = {}
        for (k, _, _), (grad, hhat) in zip(rows, self._readable.of(rows), strict=True):
            kinds.setdefault((grad.dtype, hhat is not None), []).append(k)
        self._found.zero_()
        for (dtype, is_given), positions in kinds.items():
            how = {"GRAD_DTYPE": DTYPES[dtype], "IS_GIVEN": is_given}
            self._launcher.run(step_kernels.look_for_nonfinite, self._step_rows, positions, self._found, **how)

    def _words_of(self, rows: Sequence[Row]) -> array[int]:
        """The rows of a step: those without a gradient have the size 0."""
        words = self._words[:]
        for k in range(len(self.members)):
            words[at.WORDS * k + at.SIZE] = 0
        for (k, _, _), (grad, hhat) in zip(rows, self._readable.of(rows), strict=True):
            row = at.WORDS * k
            words[row + at.SIZE] = self._sizes[k]
            words[row + at.GRAD] = grad.data_ptr()
            words[row + at.ESTIMATE] = 0 if hhat is None else hhat.data_ptr()
            words[row + at.ALIGNED] = at.are_aligned(words[row : row + at.WORDS])
        return words

    def step(
        self,
        rows: Sequence[Row],
        settings: Sequence[StepSettings],
        then: Noises | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Update the parameters, in one launch for each kind. Means are read from the copies while a sample is in.

        With a guard the device looks for NaN, drops the step if it finds one, and counts it (`settle`).
        """
        is_captured = capturing.is_capturing(self._device)
        if is_captured:
            self._count.begin_capture({k for k, _, _ in rows})
        if any(keep == at.LEAN for _, keep in self._positions):
            self.restore()
        words, found = self._words_of(rows), list[float]()
        facts = [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0] * len(self.members)
        known: dict[tuple[int, bool], int] = {}
        keys = [0] * len(self._groups)
        kinds: dict[tuple[Any, ...], list[int]] = {}
        rates: dict[Tensor, Tensor] = {}  # those on the device, in the dtype that the kernel reads
        for (k, _, _), (grad, hhat), its in zip(rows, self._readable.of(rows), settings, strict=True):
            kind = id(its), hhat is not None
            if kind not in known:
                known[kind] = len(known)
                found += floats_of(self._its.step_scalars(its, hhat is not None))
                keys[self._groups[id(self.members[k].group)]] = signed(its.noise.key)
            row, state = at.WORDS * k, self.members[k].state
            words[row + at.SETTINGS] = known[kind]
            words[row + at.HOST_STEP] = int(state["step"])
            words[row + at.STEP] = int(state["step"]) - self._count.known_drift(k, int(state["step"]) - 1)
            if (rate := its.device_lr) is not None and rate not in rates:
                rates[rate] = rate.detach().to(self._device, torch.float32)
            words[row + at.LR_AT] = 0 if rate is None else rates[rate].data_ptr()
            facts[at.FACTS * k : at.FACTS * (k + 1)] = self._its.facts(its)
            how = at.GIVEN if hhat is not None else HOW[its.approximation]
            kinds.setdefault((*self._kinds[k], grad.dtype, how), []).append(k)
            if is_captured:
                state["step"] -= 1  # nothing is computed now; replays count by themselves
        self._step_rows.write(words)
        if guard is None:
            self._found.zero_()
        else:
            self._look(rows)
            self._count.may_differ = True
        step_keys = self._samples.keys_of_step(keys)
        self._scalars.write(found)
        self._facts.write(facts)
        self._prepare(guard)
        tables = step_keys, self._scalars.tensor, self._clock, self._found, self._marks, self._number
        for (dtype, keep, grad_dtype, how), positions in kinds.items():
            kind = {"DTYPE": DTYPES[dtype], "GRAD_DTYPE": DTYPES[grad_dtype], "KEEP": keep, "HOW": how}
            self._launcher.run(self._its.step, self._step_rows, positions, *tables, **kind)
        changed([self._parts[k] for k, _, _ in rows])
        if guard is None and len(rows) == len(self.members):
            self.is_in = False
        self.restore()  # parameters without a gradient, and all of them if the step was dropped
        self.converted = self._readable.converted
        self._readable.forget()
        if then is not None:
            self.draw(then)

    def _prepare(self, guard: Guard | None) -> None:
        given = guard or Guard()
        overflow, norm = (self._zero if each is None else each for each in (given.overflow, given.norm))
        scale, unclip = (self._one if each is None else each for each in (given.scale, given.unclip))
        self._launcher.run_once(
            step_kernels.prepare, self._step_rows.tensor, len(self.members), self._facts.tensor, self._clock,
            self._count.drift, self._found, overflow, scale, norm, unclip, int(self._count.is_captured),
        )  # fmt: skip

    @property
    def is_captured(self) -> bool:
        """Whether a CUDA graph has captured a step: replays take steps that the host does not see."""
        return self._count.is_captured

    def settle(self) -> int:
        """Bring the parameters' step counts up to date with the device's; the host waits for it.

        Returns:
            How many steps were dropped since the last call.
        """
        return self._count.settle()

    def last_draws(self) -> dict[int, int]:
        """Id of a group -> the number of its last training sample; the host waits for the device."""
        return self._samples.last_draws()

    def fold(self, folds: Sequence[tuple[int, Fold]]) -> None:
        """Average gradients and hhat with those of earlier samples."""
        others = self._folds.run(self._its.fold, folds)
        changed([each.grad_mean for _, each in folds if each.grad_mean is not None])
        if others:
            loop.plan(self.members, self._rule).fold(others)


def _keep(member: Member) -> int:
    """Where the mean of a parameter is while a sample is in it."""
    if "mean" in member.state:
        return at.STATE
    return at.LEAN if member.group["memory"] == "lean" else at.COPY
