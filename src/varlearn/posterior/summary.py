"""A posterior's marginal standard deviations in a few numbers."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from varlearn.types import Posterior


class StdSummary(NamedTuple):
    """What sigma looks like over some weights."""

    count: int
    min: float
    mean: float
    max: float


class MarginalStd(NamedTuple):
    """The summary over all weights, and that of each tensor."""

    total: StdSummary
    tensors: dict[str, StdSummary]


def marginal_std(posterior: Posterior) -> MarginalStd:
    """Count, smallest, mean and largest marginal sigma, over all weights and per tensor (empty tensors left out).

    >>> import torch
    >>> from varlearn.posterior import DiagGaussian
    >>> q = DiagGaussian({"w": torch.zeros(2)}, {"w": torch.tensor([1.0, 4.0])}, ess=0.25)
    >>> marginal_std(q).total  # 1 / sqrt(0.25 * h)
    StdSummary(count=2, min=1.0, mean=1.5, max=2.0)
    """
    tensors = {name: _summary(std) for name, std in posterior.std.items() if std.numel()}
    count = sum(part.count for part in tensors.values())
    if not count:
        return MarginalStd(StdSummary(0, float("nan"), float("nan"), float("nan")), tensors)
    total = StdSummary(
        count,
        min(part.min for part in tensors.values()),
        sum(part.count * part.mean for part in tensors.values()) / count,
        max(part.max for part in tensors.values()),
    )
    return MarginalStd(total, tensors)


def _summary(std: Tensor) -> StdSummary:
    return StdSummary(std.numel(), std.min().item(), std.double().mean().item(), std.max().item())


class LayerScale(NamedTuple):
    """The size of a tensor's weights, and what the posterior says of them; see `layer_scales`."""

    name: str
    count: int
    weight_rms: float
    std_median: float
    std_low: float
    std_high: float
    hess_median: float | None


def layer_scales(posterior: Posterior, most: int = 200) -> list[LayerScale]:
    """For each tensor: root mean square of its mean weights, median and 10% and 90% quantiles of sigma, median of h.

    Quantiles of a large tensor are those of 100,000 of its entries, at equal distances.

    Args:
        posterior: h is known of a `DiagGaussian`.
        most: leave out the smallest of more tensors than this.

    >>> import torch
    >>> from varlearn.posterior import DiagGaussian
    >>> q = DiagGaussian({"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([1.0, 1.0])}, ess=4.0)
    >>> layer_scales(q)[0].weight_rms, layer_scales(q)[0].std_median  # sqrt(25 / 2), 1 / sqrt(4)
    (3.5355339059327378, 0.5)
    """
    std, hess = posterior.std, getattr(posterior, "hess", {})
    sizes = sorted((value.numel() for value in std.values() if value.numel()), reverse=True)[:most]
    found = []
    for name, values in std.items():
        if not values.numel() or values.numel() < sizes[-1] or len(found) == most:
            continue
        low, median, high = _quantiles(values)
        curvature = _quantiles(hess[name])[1] if name in hess else None
        rms = posterior.mean[name].double().square().mean().sqrt().item()
        found.append(LayerScale(name, values.numel(), rms, median, low, high, curvature))
    return found


def _quantiles(values: Tensor) -> tuple[float, float, float]:
    """The quantiles at 10%, 50% and 90%."""
    flat = values.flatten()
    ordered = flat[:: -(-len(flat) // 100_000)].float().sort().values
    low, median, high = (ordered[int(share * (len(ordered) - 1))].item() for share in (0.1, 0.5, 0.9))
    return low, median, high
