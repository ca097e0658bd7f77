"""Entries of h that a huge gradient has driven to the largest number are found and started anew.

Line 5 squares hhat: a gradient of 1e20 makes h overflow in float32. It saturates near 1e37 instead, and from there it
falls by the factor beta2 per step, so the weight would not move again for 80 / (1 - beta2) steps. Such an entry says
nothing about the loss. It gets its first values again: `hess_init`, and no momentum.

AdamW's second moment overflows likewise, to infinity, and the weight would never move again. Such an entry gets the
mean of the other entries of its parameter, and no momentum.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

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
        due = [member for member in members if member.state["step"] % EVERY == 0 and "betas" in member.group]
        found = sum([_restart(member) for member in due])
        if found and not self.restarted:
            _log.warning(
                "the curvature of %d weight(s) overflowed after a gradient above 1e15 or so, and was started anew "
                "(IVON: at hess_init); look for such gradients and clip them",
                found,
            )
        self.restarted += found


def _restart(member: Member) -> int:
    """Start the saturated entries of a parameter anew; returns how many there were."""
    if {"momentum", "hess"} <= member.state.keys():
        curvature, momentum = local(member.state["hess"]), local(member.state["momentum"])
    elif {"exp_avg", "exp_avg_sq"} <= member.state.keys():
        curvature, momentum = local(member.state["exp_avg_sq"]), local(member.state["exp_avg"])
    else:
        return 0  # another rule's state
    bound = largest(curvature.dtype)
    # It may have fallen since the last look; below a millionth it comes back by itself soon.
    since = max(float(member.group["betas"][1]) ** EVERY / 2, 1e-6)
    if not curvature.numel() or float(curvature.max()) < bound * since:
        return 0
    saturated = curvature >= bound * since
    curvature.masked_fill_(saturated, _first_value(member, curvature[~saturated]))
    momentum.masked_fill_(saturated, 0.0)
    return int(torch.count_nonzero(saturated))


def _first_value(member: Member, others: Tensor) -> float:
    """What a saturated entry starts from, given the other entries of its parameter."""
    if "hess_init" in member.group:
        return float(member.group["hess_init"])
    return float(others.mean()) if others.numel() else 0.0
