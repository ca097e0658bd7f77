"""Statistics of the learned posterior: what Appendix A says to monitor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from varlearn.advice import Finding, RunFacts, findings
from varlearn.core import update
from varlearn.core.shards import local
from varlearn.optim.objective import prior_mean
from varlearn.optim.ranks.fsdp import combined
from varlearn.optim.sampling.members import Members


@dataclass(frozen=True)
class GroupDiagnostics:
    """One parameter group after some steps; floats, ready for a log.

    Attributes:
        params: number of scalar parameters with a state.
        step: steps taken, the largest among the parameters.
        hess_mean: mean of h.
        hess_min: smallest h.
        hess_max: largest h.
        hess_negative: how many entries have h < 0 (allowed: h + delta is positive).
        hess_moved: mean of |h - h0| / (h0 + delta): 0 means that nothing was learned about the curvature.
        std_mean: mean of sigma.
        std_min: smallest sigma.
        std_max: largest sigma.
        noise_ratio: root mean square of sigma divided by that of the mean weights.
        clipped: fraction of entries whose preconditioned gradient reaches the clip radius.
        effective_step: root mean square of the next change of the mean, alpha * clip((gbar + delta m) / (h + delta)).
        by_native: parameters (tensors) that the native engine computes.
        by_foreach: parameters that the foreach engine computes.
        by_loop: parameters that the reference loop computes.
        converted: gradients of the last step that were first copied into another memory order or dtype, in all groups.
        advice: what is wrong with the run so far and what to change, in words; None if nothing was found.
        findings: the same, one by one.
    """

    params: int
    step: int
    hess_mean: float
    hess_min: float
    hess_max: float
    hess_negative: int
    hess_moved: float
    std_mean: float
    std_min: float
    std_max: float
    noise_ratio: float
    clipped: float
    effective_step: float
    by_native: int
    by_foreach: int
    by_loop: int
    converted: int
    advice: str | None
    findings: tuple[Finding, ...] = ()


@torch.no_grad()
def diagnose(optimizer: Optimizer, members: Members) -> list[GroupDiagnostics]:
    """The diagnostics of every group that has taken a sample; one pass over the state, no gradient needed."""
    groups = [group for group in optimizer.param_groups if _with_state(optimizer, group)]
    return [_diagnose_group(optimizer, group, members.counts(group)) for group in groups]


def _with_state(optimizer: Optimizer, group: dict[str, Any]) -> list[Tensor]:
    return [p for p in group["params"] if p.numel() > 0 and "hess" in optimizer.state.get(p, {})]


def _diagnose_group(optimizer: Optimizer, group: dict[str, Any], engines: dict[str, int]) -> GroupDiagnostics:
    params = _with_state(optimizer, group)
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
                    std.sum(dtype=torch.float64),
                    -_largest(-std),
                    _largest(std),
                    (direction.abs() >= radius).sum().double(),
                    moves.double().square().sum(),
                    std.double().square().sum(),
                    local(state.get("mean", param)).double().square().sum(),
                    (~hess.isfinite() | ~moves.isfinite()).sum().double(),
                ]
            ).cpu()
        )
    table = torch.stack(rows)  # (parameters, statistics)
    total, least, most = (combined(params, table, how).tolist() for how in ("sum", "min", "max"))
    step = max(optimizer.state[param]["step"] for param in params)
    moved = total[4] / count / scale
    noise_ratio = math.sqrt(total[10] / total[11]) if total[11] > 0.0 else math.inf
    found = findings(
        RunFacts(
            step=step,
            skipped_steps=getattr(optimizer, "skipped_steps", None),
            nonfinite_weights=int(total[12]),
            ess=ess,
            hess_init=float(group["hess_init"]),
            weight_decay=weight_decay,
            beta2=float(group["betas"][1]),
            hess_mean=total[0] / count,
            hess_moved=moved,
            params=count,
            noise_ratio=noise_ratio,
        )
    )
    return GroupDiagnostics(
        params=count,
        step=step,
        hess_mean=total[0] / count,
        hess_min=least[1],
        hess_max=most[2],
        hess_negative=int(total[3]),
        hess_moved=moved,
        std_mean=total[5] / count,
        std_min=least[6],
        std_max=most[7],
        noise_ratio=noise_ratio,
        clipped=total[8] / count,
        effective_step=lr * math.sqrt(total[9] / count),
        by_native=engines["native"],
        by_foreach=engines["foreach"],
        by_loop=engines["loop"],
        converted=engines["converted"],
        advice="\n".join(map(str, found)) or None,
        findings=found,
    )


def _largest(values: Tensor) -> Tensor:
    """The largest entry; this rank's part of a sharded parameter may have none."""
    return values.max().double() if values.numel() else torch.full((), -math.inf, dtype=torch.float64)


def _direction(param: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    """(gbar + delta (m - m0)) / (h + delta) as the state stands."""
    weight_decay = float(group["weight_decay"])
    debias = 1.0 - float(group["betas"][0]) ** state["step"] if group["debias"] and state["step"] else 1.0
    offset = local(state.get("mean", param)) - prior_mean(state, group)
    precision = update.precision(local(state["hess"]), weight_decay)
    return (local(state["momentum"]) / debias).add_(offset, alpha=weight_decay).div_(precision)
