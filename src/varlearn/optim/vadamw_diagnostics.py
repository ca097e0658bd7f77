"""Statistics of variational AdamW's posterior: how wide it is, and how much of it the data have decided."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from varlearn.advice import Finding, RunFacts, findings
from varlearn.core.shards import local
from varlearn.optim.objective import HasPosterior
from varlearn.optim.prior_widths import mean_squares
from varlearn.optim.ranks.fsdp import combined

_SAMPLED = 1 << 16  # entries of a parameter that quantiles are taken of


class CountsEngines(Protocol):
    """What knows which engine computes which parameter."""

    def counts(self, group: dict[str, Any]) -> dict[str, int]:
        """Engine -> number of parameters."""
        ...


@dataclass(frozen=True)
class VAdamWDiagnostics:
    """One parameter group after some steps; floats, ready for a log.

    Attributes:
        params: number of scalar parameters with a state.
        step: steps taken, the largest among the parameters.
        ess: lambda now.
        curvature_low: 5% of the entries of B vhat are smaller; of this rank's part, like the next two.
        curvature_median: the median of B vhat.
        curvature_high: 5% of the entries of B vhat are larger.
        std_mean: mean of sigma.
        noise_min: smallest ratio, among the parameter tensors, of sigma to the weights; root mean squares of both.
        noise_max: largest such ratio. Tensors whose weights are all 0 have none.
        effective_params: sum of 1 - sigma^2 / s^2: how many parameters the data decide, and not the prior.
        loss_rise: 1/2 sum B vhat sigma^2, by how much noise raises the loss, to second order.
        by_native: parameters (tensors) that the native engine computes.
        by_foreach: parameters that the foreach engine computes.
        by_loop: parameters that the reference loop computes.
        converted: gradients of the last step that were first copied into another memory order or dtype, in all groups.
        advice: what is wrong with the run so far and what to change, in words; None if nothing was found.
        findings: the same, one by one.
    """

    params: int
    step: int
    ess: float
    curvature_low: float
    curvature_median: float
    curvature_high: float
    std_mean: float
    noise_min: float
    noise_max: float
    effective_params: float
    loss_rise: float
    by_native: int
    by_foreach: int
    by_loop: int
    converted: int
    advice: str | None = None
    findings: tuple[Finding, ...] = ()


@torch.no_grad()
def diagnose(optimizer: HasPosterior, engines: CountsEngines) -> list[VAdamWDiagnostics]:
    """The diagnostics of every group that has taken a sample; one pass over the state, no gradient needed."""
    found = []
    for group in optimizer.param_groups:
        params = [p for p in group["params"] if p.numel() > 0 and "exp_avg_sq" in optimizer.state.get(p, {})]
        if params:
            found.append(_diagnose_group(optimizer, group, params, engines.counts(group)))
    return found


def _diagnose_group(
    optimizer: HasPosterior, group: dict[str, Any], params: list[Tensor], engines: dict[str, int]
) -> VAdamWDiagnostics:
    table: list[Tensor] = []
    noises: list[float] = []
    entries: list[Tensor] = []
    ess = float(group["ess"])
    for param in params:
        curvature, ess, delta = optimizer.posterior_terms(param)
        part = local(curvature).double().flatten()
        variance = 1.0 / (ess * (part + delta))
        std = variance.sqrt()
        decided = (1.0 - variance * (ess * delta)).sum()
        mean = local(optimizer.state[param].get("mean", param.detach()))
        bad = (~variance.isfinite() | ~mean.flatten().isfinite()).sum().double()
        sums = [std.sum(), decided, (part * variance).sum() / 2.0, variance.sum(), mean.double().square().sum(), bad]
        table.append(torch.stack(sums).cpu())
        entries.append(part[:: max(1, part.numel() // _SAMPLED)].cpu())
        noise, weight = (math.sqrt(mean_squares([each], [param])[0]) for each in (std, mean))
        if weight > 0.0:
            noises.append(noise / weight)
    std_sum, decided_sum, rise, squares, weights, bad = combined(params, torch.stack(table), "sum").tolist()
    count = sum(param.numel() for param in params)
    step = max(int(optimizer.state[param]["step"]) for param in params)
    found = findings(
        RunFacts(
            n=int(group["n"]),
            batch_size=int(group["batch_size"]),
            step=step,
            steps=group["steps"],
            skipped_steps=getattr(optimizer, "skipped_steps", None),
            nonfinite_weights=int(bad),
            ess=ess,
            params=count,
            noise_ratio=math.sqrt(squares / weights) if weights > 0.0 else math.inf,
        )
    )
    low, median, high = _quantiles(torch.cat(entries))
    return VAdamWDiagnostics(
        params=count,
        step=step,
        ess=ess,
        curvature_low=low,
        curvature_median=median,
        curvature_high=high,
        std_mean=std_sum / count,
        noise_min=min(noises, default=0.0),
        noise_max=max(noises, default=0.0),
        effective_params=decided_sum,
        loss_rise=rise,
        by_native=engines["native"],
        by_foreach=engines["foreach"],
        by_loop=engines["loop"],
        converted=engines["converted"],
        advice="\n".join(map(str, found)) or None,
        findings=found,
    )


def _quantiles(entries: Tensor) -> tuple[float, float, float]:
    """5%, 50% and 95%, each the nearest entry below; 0 without entries."""
    if entries.numel() == 0:
        return 0.0, 0.0, 0.0
    values = entries.sort().values
    low, median, high = (float(values[int(share * (len(values) - 1))]) for share in (0.05, 0.5, 0.95))
    return low, median, high
