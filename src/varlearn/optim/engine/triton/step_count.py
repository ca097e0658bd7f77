"""How many steps the device has taken. It drops some by itself, and a CUDA graph takes more than the host sees."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from varlearn.optim.engine.plan import Member


class StepCount:
    """Keeps the step counts of a plan's parameters and the device's together.

    The kernels add a drift, which they count, to the number in their table. Once a graph has captured a step, the
    number in the table stays, and the device counts every step.

    Args:
        members: the parameters.
        device: where the kernels run.

    Attributes:
        drift: int32 on the device; one for each parameter, and the number of dropped steps.
        is_captured: whether a graph has captured a step.
        may_differ: whether a step may have been dropped since the host asked.
    """

    def __init__(self, members: Sequence[Member], device: torch.device) -> None:
        self._members = members
        with torch.inference_mode(False):
            self.drift = torch.zeros(len(members) + 1, dtype=torch.int32, device=device)
        self.is_captured = self.may_differ = False
        self._settled, self._dropped = [0] * len(members), 0  # of the drift, what the host knows
        self._base: list[int] = []  # steps taken when one was captured, without the drift

    def begin_capture(self, stepped: Collection[int]) -> None:
        """A graph captures a step of these parameters, which the host has counted already."""
        if not self.is_captured:
            taken = (int(member.state["step"]) - (k in stepped) for k, member in enumerate(self._members))
            self._base = [steps - settled for steps, settled in zip(taken, self._settled, strict=True)]
            self.is_captured = True

    def known_drift(self, k: int, taken: int) -> int:
        """By how much the steps taken by a parameter differ from the number in the table, as far as the host knows."""
        return taken - self._base[k] if self.is_captured else self._settled[k]

    def settle(self) -> int:
        """Bring `state["step"]` up to date; the host waits for the device.

        Returns:
            How many steps were dropped since the last call.
        """
        if not (self.may_differ or self.is_captured):
            return 0
        *by_member, dropped = self.drift.tolist()
        for k, (member, drift) in enumerate(zip(self._members, by_member, strict=True)):
            before = self._base[k] if self.is_captured else member.state["step"] - self._settled[k]
            member.state["step"], self._settled[k] = before + drift, drift
        self.may_differ, before, self._dropped = False, self._dropped, dropped
        return dropped - before
