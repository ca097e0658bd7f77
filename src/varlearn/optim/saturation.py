"""Entries of h that a huge gradient has driven to the largest number are found and started anew.

Line 5 squares hhat: a gradient of 1e20 makes h overflow in float32. It saturates near 1e37 instead, and from there it
falls by the factor beta2 per step, so the weight would not move again for 80 / (1 - beta2) steps. Such an entry says
nothing about the loss. It gets its first values again: `hess_init`, and no momentum.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from varlearn.core.shards import local
from varlearn.core.update import largest
from varlearn.optim.engine.plan import Member

EVERY = 64  # steps of a parameter between two looks at its h

_log = logging.getLogger("varlearn")


class Saturation:
    """Looks at h of each parameter every 64 steps.

    Attributes:
        restarted: how many entries were started anew.
    """

    def __init__(self) -> None:
        self.restarted = 0

    def recover(self, members: Sequence[Member]) -> None:
        """After a step of these parameters: start their saturated entries anew, and warn of the first ones."""
        due = [member for member in members if member.state["step"] % EVERY == 0 and _is_of_ivon(member)]
        found = sum([_restart(member) for member in due])
        if found and not self.restarted:
            _log.warning(
                "h of %d weight(s) overflowed after a gradient above 1e15 or so, and was set to hess_init again; look "
                "for such gradients, clip them, or raise ess",
                found,
            )
        self.restarted += found


def _is_of_ivon(member: Member) -> bool:
    """Whether the parameter has what line 5 may overflow: other rules have other state."""
    return "momentum" in member.state and "hess" in member.state and "betas" in member.group


def _restart(member: Member) -> int:
    """Start the saturated entries of a parameter anew; returns how many there were."""
    hess = local(member.state["hess"])
    bound = largest(hess.dtype)
    # It may have fallen since the last look; below a millionth it comes back by itself soon.
    since = max(float(member.group["betas"][1]) ** EVERY / 2, 1e-6)
    if not hess.numel() or float(hess.max()) < bound * since:
        return 0
    saturated = hess >= bound * since
    hess.masked_fill_(saturated, float(member.group["hess_init"]))
    local(member.state["momentum"]).masked_fill_(saturated, 0.0)
    return int(torch.count_nonzero(saturated))
