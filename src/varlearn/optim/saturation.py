"""Running averages that a huge gradient has driven to the largest number are found and started anew.

Line 5 squares hhat: a gradient of 1e20 makes h overflow in float32. It saturates near 1e37 instead, and from there it
falls by the factor beta2 per step, so the weight would not move again for 80 / (1 - beta2) steps. Such an entry says
nothing about the loss. It gets its first values again: `hess_init`, and no momentum.

AdamW's second moment overflows likewise, to infinity, and the weight would never move again. Such an entry gets the
mean of the other entries of its parameter, and no momentum. A rule says which of its averages these are (`restarts`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from varlearn.core.rule import Rule
from varlearn.core.shards import local
from varlearn.core.update import largest
from varlearn.optim.engine.plan import Member

EVERY = 64  # steps of a parameter between two looks at its averages

_log = logging.getLogger("varlearn")


class Saturation:
    """Looks at the averages of each parameter every 64 steps.

    Args:
        rule: which of its averages are looked at.

    Attributes:
        restarted: how many entries were started anew.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.restarted = 0

    def recover(self, members: Sequence[Member]) -> None:
        """After a step of these parameters: start their saturated entries anew, and warn of the first ones."""
        due = [member for member in members if member.state["step"] % EVERY == 0]
        found = sum([_restart(member, self._rule, name) for member in due for name in self._rule.restarts])
        if found and not self.restarted:
            _log.warning(
                "the curvature of %d weight(s) overflowed after a gradient above 1e15 or so, and was started anew "
                "(IVON: at hess_init); look for such gradients and clip them",
                found,
            )
        self.restarted += found


def _restart(member: Member, rule: Rule, name: str) -> int:
    """Start the saturated entries of one average of a parameter anew; returns how many there were."""
    average, momentum = local(member.state[name]), local(member.state[rule.restarts[name]])
    bound = largest(average.dtype)
    # It may have fallen since the last look; below a millionth it comes back by itself soon.
    since = max(float(member.group["betas"][1]) ** EVERY / 2, 1e-6)
    if not average.numel() or float(average.max()) < bound * since:
        return 0
    saturated = average >= bound * since
    average.masked_fill_(saturated, _first_value(member, rule, name, average[~saturated]))
    momentum.masked_fill_(saturated, 0.0)
    return int(torch.count_nonzero(saturated))


def _first_value(member: Member, rule: Rule, name: str, others: Tensor) -> float:
    """What a saturated entry starts from, given the other entries of its parameter."""
    if name in rule.initial:
        return float(member.group[rule.initial[name]])
    return float(others.mean()) if others.numel() else 0.0
