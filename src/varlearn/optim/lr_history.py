"""The learning rates that steps were taken with: a posterior is only good if they fell to nearly 0."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from varlearn.advice import RunFacts, findings
from varlearn.optim.hyper import stays_on_device

Group = dict[str, Any]


@dataclass(frozen=True)
class RatesSeen:
    """The learning rates of a parameter group, over the steps that this object has taken.

    Attributes:
        start: of the first step.
        lowest: the smallest.
        peak: the largest.
        last: of the last step.
        constant_for: how many of the last steps had the same one.
    """

    start: float
    lowest: float
    peak: float
    last: float
    constant_for: int

    def then(self, rate: float) -> RatesSeen:
        """The same with one more step.

        >>> RatesSeen(1.0, 1.0, 1.0, 1.0, 5).then(0.5)
        RatesSeen(start=1.0, lowest=0.5, peak=1.0, last=0.5, constant_for=1)
        """
        if rate == self.last:
            return replace(self, constant_for=self.constant_for + 1)
        return RatesSeen(self.start, min(self.lowest, rate), max(self.peak, rate), rate, 1)


class LrHistory:
    """Notes the learning rate of each step, and warns once where it never fell.

    It is no part of the optimizer's state dict, so a resumed loop starts a new one; `train.fit` saves it beside.
    """

    def __init__(self) -> None:
        self._seen: list[RatesSeen] = []
        self._has_warned = False

    def state_dict(self) -> list[list[float]]:
        """What was seen of each group, as numbers."""
        return [[*astuple(seen)] for seen in self._seen]

    def load_state_dict(self, state: Sequence[Sequence[float]]) -> None:
        """Go on from what `state_dict` gave."""
        self._seen = [RatesSeen(*map(float, rates), constant_for=int(count)) for *rates, count in state]

    def note(self, groups: Sequence[Group]) -> None:
        """Call after each step."""
        if any([stays_on_device(group["lr"]) for group in groups]):
            return  # reading it would make the host wait
        for number, group in enumerate(groups):
            rate = float(group["lr"])
            if number < len(self._seen):
                self._seen[number] = self._seen[number].then(rate)
            else:
                self._seen.append(RatesSeen(rate, rate, rate, rate, 1))

    def of(self, groups: Sequence[Group], group: Group) -> RatesSeen:
        """What was seen of a group; its present learning rate if it has taken no step."""
        number = next((number for number, each in enumerate(groups) if each is group), len(self._seen))
        if number < len(self._seen):
            return self._seen[number]
        rate = float(group["lr"])
        return RatesSeen(rate, rate, rate, rate, 0)

    def facts(self, groups: Sequence[Group], group: Group) -> dict[str, Any]:
        """What `RunFacts` takes of a group's learning rates; nothing while it is too early to judge them.

        Where the optimizer does not know its number of steps and a scheduler of PyTorch is attached, the scheduler may
        still lower the rate: once an epoch, or at the end.
        """
        seen = self.of(groups, group)
        if not seen.constant_for or (group.get("steps") is None and "initial_lr" in group):
            return {}
        return {"lr": seen.last, "lr_peak": seen.peak, "lr_constant_for": seen.constant_for}

    def warn(self, groups: Sequence[Group], step: int) -> None:
        """Warn once if the run is over and its learning rate did not fall.

        A run whose number of steps is known is over when they are taken.

        Args:
            groups: all parameter groups.
            step: steps taken, those before a resume included.
        """
        for group in () if self._has_warned else groups:
            steps = group.get("steps")
            if steps is None or step >= steps:
                for finding in findings(RunFacts(step=step, steps=steps, **self.facts(groups, group))):
                    self._has_warned = True
                    warnings.warn(f"{finding.sentence} {finding.cause} {finding.change}", UserWarning, stacklevel=4)
                    return
