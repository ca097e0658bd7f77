"""Statistics of a learned posterior: how wide it is, and how much of it the data have decided."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from varlearn.advice import Finding, RunFacts, findings
from varlearn.core import update
from varlearn.core.notebook import html_table
from varlearn.core.shards import local
from varlearn.optim.objective import HasPosterior
from varlearn.optim.prior_widths import mean_squares
from varlearn.optim.ranks.fsdp import combined
from varlearn.optim.sampling.members import Members

_SAMPLED = 1 << 16  # entries of a parameter that quantiles are taken of, at least


@dataclass(frozen=True, repr=False)
class GroupDiagnostics:
    """One parameter group after some steps; floats, ready for a log. The curvature is h for IVON, B vhat for VAdamW.

    Attributes:
        params: number of scalar parameters with a state.
        step: steps taken, the largest among the parameters.
        lr: learning rate of the last step.
        lr_start: learning rate of the first step that this object has taken; the next three count from there.
        lr_lowest: smallest learning rate.
        lr_peak: largest learning rate.
        lr_constant_for: how many of the last steps had the same learning rate.
        ess: lambda now.
        curvature_start: where the curvature began: `hess_init`, or 0 for VAdamW.
        curvature_low: 5% of the entries of the curvature are smaller; of this rank's part, like the next two.
        curvature_median: the median of the curvature.
        curvature_high: 5% of the entries of the curvature are larger.
        std_mean: mean of sigma.
        noise_ratio: root mean square of sigma divided by that of the mean weights; infinite if these are all 0.
        noise_min: smallest such ratio among the parameter tensors.
        noise_median: the middle one of these, the lower of two.
        noise_max: largest of them. Tensors whose weights are all 0 have none; without any, all three are 0.
        effective_params: sum of h / (h + delta): how many parameters the data decide, and not the prior. A negative h
            counts as 0.
        loss_rise: 1/2 sum h sigma^2, by how much noise raises the mean loss, to second order. It is
            effective_params / (2 lambda).
        by_native: parameters (tensors) that the native engine computes.
        by_triton: parameters that the Triton engine computes.
        by_foreach: parameters that the foreach engine computes.
        by_loop: parameters that the reference loop computes.
        converted: gradients of the last step that were first copied into another memory order or dtype, in all groups.
        advice: what is wrong with the run so far and what to change, in words; None if nothing was found.
        findings: the same, one by one.
    """

    params: int
    step: int
    lr: float
    lr_start: float
    lr_lowest: float
    lr_peak: float
    lr_constant_for: int
    ess: float
    curvature_start: float
    curvature_low: float
    curvature_median: float
    curvature_high: float
    std_mean: float
    noise_ratio: float
    noise_min: float
    noise_median: float
    noise_max: float
    effective_params: float
    loss_rise: float
    by_native: int
    by_triton: int
    by_foreach: int
    by_loop: int
    converted: int
    advice: str | None
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        rows = (f"{name} {value}" for name, value in self._rows())
        return f"{type(self).__name__} of {self.params:,} parameters: {', '.join(rows)}"

    def _repr_html_(self) -> str:
        return html_table(f"{self.params:,} parameters", self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("step", str(self.step)), ("ess", f"{self.ess:.3g}"), ("mean sigma", f"{self.std_mean:.3g}")]
        rows += [("sigma / weights", f"{self.noise_ratio:.3g}"), ("decided by data", f"{self.effective_params:.3g}")]
        return [*rows, ("advice", self.advice or "none")]


@torch.no_grad()
def diagnose(optimizer: HasPosterior, members: Members) -> list[GroupDiagnostics]:
    """The diagnostics of every group that has taken a sample; one pass over the state, no gradient needed."""
    groups = [(group, params) for group in optimizer.param_groups if (params := with_state(optimizer, members, group))]
    return [diagnose_group(optimizer, members, group, params, _facts(group)) for group, params in groups]


def _facts(group: dict[str, Any]) -> RunFacts:
    return RunFacts(n=int(group["n"]), batch_size=int(group["batch_size"]), steps=group["steps"])


def with_state(optimizer: HasPosterior, members: Members, group: dict[str, Any]) -> list[Tensor]:
    """The parameters of a group that have taken a sample."""
    name = members.rule.curvature
    return [param for param in group["params"] if param.numel() > 0 and name in optimizer.state.get(param, {})]


def diagnose_group(
    optimizer: HasPosterior, members: Members, group: dict[str, Any], params: list[Tensor], known: RunFacts
) -> GroupDiagnostics:
    """The diagnostics of these parameters of a group; findings also use the facts that the caller knows."""
    sums: list[Tensor] = []
    noises: list[float] = []
    entries: list[Tensor] = []
    for param in params:
        curvature, ess, delta = optimizer.posterior_terms(param)
        part = local(curvature)
        precision = update.precision(part, delta)
        std = precision.rsqrt() / math.sqrt(ess)
        decided = part.clamp(min=0.0).div_(precision)
        mean = local(optimizer.state[param].get("mean", param.detach()))
        bad = ~std.isfinite() | ~mean.isfinite()
        parts = std, decided, std.double().square(), mean.double().square(), bad
        sums.append(torch.stack([each.sum(dtype=torch.float64) for each in parts]).cpu())
        entries.append(_some(part).double().cpu())
        noise, weight = (math.sqrt(mean_squares([each], [param])[0]) for each in (std, mean))
        if weight > 0.0:
            noises.append(noise / weight)
    std_sum, decided_sum, variances, squares, bad_count = combined(params, torch.stack(sums), "sum").tolist()
    count, ess, engines = sum(param.numel() for param in params), float(group["ess"]), members.counts(group)
    step = max(int(optimizer.state[param]["step"]) for param in params)
    ratio = math.sqrt(variances / squares) if squares > 0.0 else math.inf
    measured = {"step": step, "ess": ess, "params": count, "noise_ratio": ratio, "nonfinite_weights": int(bad_count)}
    rates = optimizer.lr_history.of(optimizer.param_groups, group)
    measured |= optimizer.lr_history.facts(optimizer.param_groups, group)
    found = findings(replace(known, skipped_steps=getattr(optimizer, "skipped_steps", None), **measured))
    low, median, high = _quantiles(torch.cat(entries))
    first = members.rule.initial.get(members.rule.curvature)
    return GroupDiagnostics(
        params=count,
        step=step,
        lr=rates.last,
        lr_start=rates.start,
        lr_lowest=rates.lowest,
        lr_peak=rates.peak,
        lr_constant_for=rates.constant_for,
        ess=ess,
        curvature_start=0.0 if first is None else float(group[first]),
        curvature_low=low,
        curvature_median=median,
        curvature_high=high,
        std_mean=std_sum / count,
        noise_ratio=ratio,
        noise_min=min(noises, default=0.0),
        noise_median=statistics.median_low(noises) if noises else 0.0,
        noise_max=max(noises, default=0.0),
        effective_params=decided_sum,
        loss_rise=decided_sum / (2.0 * ess),
        by_native=engines["native"],
        by_triton=engines["triton"],
        by_foreach=engines["foreach"],
        by_loop=engines["loop"],
        converted=engines["converted"],
        advice="\n".join(map(str, found)) or None,
        findings=found,
    )


def _some(values: Tensor) -> Tensor:
    """All entries, or every k-th of a large tensor. k is odd, to visit all columns of a matrix of even width."""
    flat = values.flatten()
    return flat[:: max(1, flat.numel() // _SAMPLED - 1) | 1]


def _quantiles(entries: Tensor) -> tuple[float, float, float]:
    """5%, 50% and 95%, each the nearest entry below; 0 without entries."""
    if entries.numel() == 0:
        return 0.0, 0.0, 0.0
    values = entries.sort().values
    low, median, high = (float(values[int(share * (len(values) - 1))]) for share in (0.05, 0.5, 0.95))
    return low, median, high
