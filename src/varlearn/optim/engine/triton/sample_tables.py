"""The keys and scales of a plan's samples: from the host, or made by the device from what it has counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from varlearn.core.noise import signed
from varlearn.optim.engine.native import scalars
from varlearn.optim.engine.plan import KeyParts, Member, Noises
from varlearn.optim.engine.triton import capturing, sample_kernels
from varlearn.optim.engine.triton.device_tables import DeviceTable
from varlearn.optim.engine.triton.launching import Launcher
from varlearn.optim.engine.triton.step_count import StepCount


class SampleTables:
    """What the kernels need to know of a sample.

    Args:
        members: the parameters.
        groups: ids of the parameter groups -> their numbers.
        launcher: of the plan.
        scaling: of the rule, see `RuleLaunches`.
        count: of the plan.
        device: where the kernels run.
    """

    def __init__(
        self,
        members: Sequence[Member],
        groups: dict[int, int],
        launcher: Launcher,
        scaling: Any,
        count: StepCount,
        device: torch.device,
    ) -> None:
        self._members, self._groups, self._launcher = members, groups, launcher
        self._scaling, self._count, self._device = scaling, count, device
        self._draw_keys, self._step_keys = DeviceTable(torch.int64, device), DeviceTable(torch.int64, device)
        self._key_parts, self._facts = DeviceTable(torch.int64, device), DeviceTable(torch.float64, device)
        self._scales = DeviceTable(torch.float32, device)
        with torch.inference_mode(False):
            self._draws = torch.zeros(len(groups), dtype=torch.int64, device=device)
            self._made_keys = torch.zeros_like(self._draws)
            self._made_scales = torch.zeros(3 * len(members), dtype=torch.float32, device=device)
        self._made_for: list[int] = []  # the keys that the device has made, as the host knows them
        self._last_draws = [0] * len(groups)

    def of(self, noises: Noises) -> tuple[Tensor, Tensor]:
        """(keys of the groups, three numbers for each row of which sigma is made)."""
        parts = [noises[group].key_parts for group in self._groups]
        known = [each for each in parts if each is not None]
        if len(known) == len(parts):
            return self._keys(known), self._scales_of(noises, is_training=True)
        capturing.refuse(self._device, "its sample is for evaluation; draw such samples outside of the graph")
        self._draw_keys.write([signed(noises[group].key) for group in self._groups])
        return self._draw_keys.tensor, self._scales_of(noises, is_training=False)

    def _keys(self, parts: Sequence[KeyParts]) -> Tensor:
        """The keys of a training sample. In a CUDA graph, of the one that comes so many after the last one."""
        is_captured, words = capturing.is_capturing(self._device), list[int]()
        for (base, draw, replica), last in zip(parts, self._last_draws, strict=True):
            words += [signed(base), replica, draw - last if is_captured else draw]
        self._key_parts.write(words)
        tables = self._key_parts.tensor, self._draws, self._made_keys, len(parts), int(is_captured)
        self._launcher.run_once(sample_kernels.make_keys, *tables)
        self._made_for = [signed(each.key) for each in parts]
        self._last_draws = [each.draw for each in parts]
        return self._made_keys

    def _scales_of(self, noises: Noises, is_training: bool) -> Tensor:
        found: list[float] = []
        known: dict[tuple[float, ...], list[float]] = {}
        scaling = self._scaling if is_training else None
        for k, member in enumerate(self._members):
            noise = noises[id(member.param) if id(member.param) in noises else id(member.group)]
            if scaling is not None:
                found += scaling(member, noise, self._count.known_drift(k, int(member.state["step"])))
                continue
            kind = noise.signed_scale
            if kind not in known:
                known[kind] = scalars.of_draws([kind])
            found += known[kind]
        if scaling is None:
            self._scales.write(found)
            return self._scales.tensor
        self._facts.write(found)
        tables = self._facts.tensor, self._count.drift, self._made_scales, len(self._members)
        self._launcher.run_once(sample_kernels.make_scales, *tables)
        return self._made_scales

    def keys_of_step(self, keys: Sequence[int]) -> Tensor:
        """The keys that the device made for the sample of the step, or those that the host knows.

        Args:
            keys: of the groups; 0 of those that have no part in the step.
        """
        if self._made_for and all(key in (0, made) for key, made in zip(keys, self._made_for, strict=True)):
            return self._made_keys
        capturing.refuse(self._device, "its sample is not the last one that was drawn")
        self._step_keys.write(keys)
        return self._step_keys.tensor

    def last_draws(self) -> dict[int, int]:
        """Id of a group -> the number of its last training sample; the host waits for the device."""
        self._last_draws = self._draws.tolist()
        return dict(zip(self._groups, self._last_draws, strict=True))
