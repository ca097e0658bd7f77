"""Statistics of IVON's h and of its step: what Appendix A says to monitor."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from varlearn.advice import RunFacts
from varlearn.core import update
from varlearn.core.shards import local
from varlearn.optim.diagnostics import GroupDiagnostics, diagnose_group, with_state
from varlearn.optim.objective import HasPosterior, prior_mean
from varlearn.optim.ranks.fsdp import combined
from varlearn.optim.sampling.members import Members


@dataclass(frozen=True, repr=False)
class IVONDiagnostics(GroupDiagnostics):
    """One parameter group of IVON after some steps.

    Attributes:
        hess_mean: mean of h.
        hess_min: smallest h.
        hess_max: largest h.
        hess_negative: how many entries have h < 0 (allowed: h + delta is positive).
        hess_moved: mean of |h - h0| / (h0 + delta): 0 means that nothing was learned about the curvature.
        std_min: smallest sigma.
        std_max: largest sigma.
        clipped: fraction of entries whose preconditioned gradient reaches the clip radius.
        effective_step: root mean square of the next change of the mean, alpha * clip((gbar + delta m) / (h + delta)).
    """

    hess_mean: float
    hess_min: float
    hess_max: float
    hess_negative: int
    hess_moved: float
    std_min: float
    std_max: float
    clipped: float
    effective_step: float


@torch.no_grad()
def diagnose_ivon(optimizer: HasPosterior, members: Members) -> list[IVONDiagnostics]:
    """The diagnostics of every group that has taken a sample."""
    groups = [(group, params) for group in optimizer.param_groups if (params := with_state(optimizer, members, group))]
    return [_diagnose_group(optimizer, members, group, params) for group, params in groups]


def _diagnose_group(
    optimizer: HasPosterior, members: Members, group: dict[str, Any], params: list[Tensor]
) -> IVONDiagnostics:
    count = sum(param.numel() for param in params)
    scale = float(group["hess_init"]) + float(group["weight_decay"])
    weight_decay, ess, radius = float(group["weight_decay"]), float(group["ess"]), float(group["clip_radius"])
    lr = float(group["lr"]) * (scale if group["rescale_lr"] else 1.0)
    rows = []
    for param in params:
        state = optimizer.state[param]
        hess = local(state["hess"])
        std = update.std(hess, ess, weight_decay)
        direction = _direction(param, state, group)
        moves = direction.clamp(-radius, radius)
        rows.append(
            torch.stack(
                [
                    hess.sum(dtype=torch.float64),
                    -_largest(-hess),
                    _largest(hess),
                    (hess < 0).sum().double(),
                    (hess - float(group["hess_init"])).abs_().sum(dtype=torch.float64),
                    -_largest(-std),
                    _largest(std),
                    (direction.abs() >= radius).sum().double(),
                    moves.double().square().sum(),
                ]
            ).cpu()
        )
    table = torch.stack(rows)  # (parameters, statistics)
    total, least, most = (combined(params, table, how).tolist() for how in ("sum", "min", "max"))
    mean, moved = total[0] / count, total[4] / count / scale
    facts = RunFacts(hess_init=float(group["hess_init"]), weight_decay=weight_decay, beta2=float(group["betas"][1]))
    shared = diagnose_group(optimizer, members, group, params, replace(facts, hess_mean=mean, hess_moved=moved))
    return IVONDiagnostics(
        **vars(shared),
        hess_mean=mean,
        hess_min=least[1],
        hess_max=most[2],
        hess_negative=int(total[3]),
        hess_moved=moved,
        std_min=least[5],
        std_max=most[6],
        clipped=total[7] / count,
        effective_step=lr * math.sqrt(total[8] / count),
    )


def _largest(values: Tensor) -> Tensor:
    """The largest entry; this rank's part of a sharded parameter may have none."""
    return values.max().double() if values.numel() else torch.full((), -math.inf, dtype=torch.float64, device="cpu")


def _direction(param: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    """(gbar + delta (m - m0)) / (h + delta) as the state stands."""
    weight_decay = float(group["weight_decay"])
    debias = 1.0 - float(group["betas"][0]) ** state["step"] if group["debias"] and state["step"] else 1.0
    offset = local(state.get("mean", param)) - prior_mean(state, group)
    precision = update.precision(local(state["hess"]), weight_decay)
    return (local(state["momentum"]) / debias).add_(offset, alpha=weight_decay).div_(precision)
