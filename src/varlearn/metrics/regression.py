"""Scores of predicted distributions of a scalar: Gaussian NLL, RMSE, CRPS, coverage of intervals.

A Gaussian prediction is its mean and its variance (epistemic plus aleatoric); a sampled one is a matrix (S, N) of S
draws for each of N examples.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from varlearn.metrics.chunks import row_slices
from varlearn.metrics.inputs import check_finite, check_matrix, check_same_length


def gaussian_nll(mean: Tensor, variance: Tensor, targets: Tensor) -> float:
    r"""Mean negative log-density in nats, $\frac1N \sum_i \frac12 [\log 2\pi v_i + (y_i - m_i)^2 / v_i]$.

    Args:
        mean: (N,) predictive means.
        variance: (N,) predictive variances, > 0.
        targets: (N,) observed values.

    Returns:
        The mean; can be negative. Add log(scale) to undo a division of the targets by `scale`.

    Example:
        >>> round(gaussian_nll(torch.zeros(1), torch.ones(1), torch.zeros(1)), 4)  # log(2 pi) / 2
        0.9189
    """
    return gaussian_nll_per_example(mean, variance, targets).mean().item()


def gaussian_nll_per_example(mean: Tensor, variance: Tensor, targets: Tensor) -> Tensor:
    """Negative log-density of each target in nats, constants included.

    Args:
        mean: (N,) predictive means.
        variance: (N,) predictive variances, > 0.
        targets: (N,) observed values.

    Returns:
        (N,) float64.

    Example:
        >>> gaussian_nll_per_example(torch.zeros(2), torch.ones(2), torch.tensor([0.0, 2.0]))  # the second 2 more
        tensor([0.9189, 2.9189], dtype=torch.float64)
    """
    mean, variance, targets = _checked_gaussian(mean, variance, targets)
    return 0.5 * ((2 * math.pi * variance).log() + (targets - mean).square() / variance)


def rmse(mean: Tensor, targets: Tensor) -> float:
    r"""Root mean squared error, $\sqrt{\frac1N \sum_i (y_i - m_i)^2}$, in the unit of the targets.

    Args:
        mean: (N,) predictive means.
        targets: (N,) observed values.

    Returns:
        A value >= 0. Chunks merge as squares: `sqrt(merge_means([(rmse_1**2, n_1), ...]))`.

    Example:
        >>> rmse(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 7.0]))  # sqrt((1 + 49) / 2)
        5.0
    """
    mean, targets = check_finite(mean, "mean"), check_finite(targets, "targets")
    check_same_length(mean=mean, targets=targets)
    return (targets - mean).square().mean().sqrt().item()


def crps_gaussian(mean: Tensor, variance: Tensor, targets: Tensor) -> float:
    r"""Mean continuous ranked probability score of Gaussians, $\int (F(x) - [x \ge y])^2 dx$, in the targets' unit.

    With $z = (y - m)/\sigma$ it is $\sigma [z (2\Phi(z) - 1) + 2\varphi(z) - 1/\sqrt\pi]$.

    Args:
        mean: (N,) predictive means.
        variance: (N,) predictive variances, > 0.
        targets: (N,) observed values.

    Returns:
        A value >= 0, lower is better.

    Example:
        >>> round(crps_gaussian(torch.zeros(1), torch.ones(1), torch.zeros(1)), 4)  # sqrt(2/pi) - 1/sqrt(pi)
        0.2337
    """
    return crps_gaussian_per_example(mean, variance, targets).mean().item()


def crps_gaussian_per_example(mean: Tensor, variance: Tensor, targets: Tensor) -> Tensor:
    """The CRPS of each Gaussian prediction.

    Args:
        mean: (N,) predictive means.
        variance: (N,) predictive variances, > 0.
        targets: (N,) observed values.

    Returns:
        (N,) float64.

    Example:
        >>> crps_gaussian_per_example(torch.zeros(1), torch.tensor([4.0]), torch.zeros(1))  # twice that of sigma = 1
        tensor([0.4674], dtype=torch.float64)
    """
    mean, variance, targets = _checked_gaussian(mean, variance, targets)
    std = variance.sqrt()
    z = (targets - mean) / std
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return std * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))


def crps_samples(samples: Tensor, targets: Tensor, fair: bool = False) -> float:
    r"""Mean CRPS of sampled predictions, $\frac1S \sum_s |x_s - y| - \frac{1}{2S^2} \sum_{s,t} |x_s - x_t|$.

    Args:
        samples: (S, N) predictive samples.
        targets: (N,) observed values, in the unit of the samples.
        fair: divide the second sum by 2S(S - 1), which makes the score unbiased for the distribution the samples come
            from; the default scores the S samples as the prediction itself.

    Returns:
        A value in the unit of the targets, lower is better; S = 1 gives the mean absolute error.

    Example:
        >>> crps_samples(torch.tensor([[0.0], [2.0]]), torch.tensor([0.0]))  # 1 - 4/8
        0.5
    """
    return crps_samples_per_example(samples, targets, fair).mean().item()


def crps_samples_per_example(samples: Tensor, targets: Tensor, fair: bool = False) -> Tensor:
    """The CRPS of each sampled prediction, by sorting: O(S log S) per example.

    Args:
        samples: (S, N) predictive samples.
        targets: (N,) observed values.
        fair: as in `crps_samples`; needs S >= 2.

    Returns:
        (N,) float64.

    Example:
        >>> crps_samples_per_example(torch.tensor([[0.0], [2.0]]), torch.tensor([0.0]), fair=True)  # 1 - 4/4
        tensor([0.], dtype=torch.float64)
    """
    check_matrix(samples, "samples", "(S, N)")
    targets = check_finite(targets, "targets")
    s, n = samples.shape
    if len(targets) != n:
        raise ValueError(
            f"samples has {n} columns and targets {len(targets)} rows, must be equal; pass samples as (S, N)"
        )
    if fair and s < 2:
        raise ValueError(f"samples has {s} row, fair=True needs at least 2; draw more samples or use fair=False")
    # sum over pairs |x_s - x_t| = 2 sum_k (2k - S - 1) x_(k), k = 1 .. S in ascending order
    weight = 2.0 * torch.arange(1, s + 1, dtype=torch.float64, device=samples.device) - s - 1
    weight /= s * (s - 1) if fair else s * s
    out = torch.empty(n, dtype=torch.float64, device=samples.device)
    for columns in row_slices(n, s):
        gap = samples[:, columns].detach().double() - targets[columns]
        bad = (~gap.isfinite()).nonzero()
        if len(bad):
            row, column = bad[0].tolist()
            raise ValueError(
                f"samples row {row} is not finite in column {columns.start + column}; repair what produced it"
            )
        out[columns] = gap.abs().mean(0) - weight @ gap.sort(0).values
    return out


def gaussian_interval(mean: Tensor, variance: Tensor, level: float = 0.95) -> tuple[Tensor, Tensor]:
    r"""The central interval that a Gaussian gives probability `level`, $m \pm \sigma \Phi^{-1}((1 + level)/2)$.

    Args:
        mean: (N,) predictive means.
        variance: (N,) predictive variances, > 0.
        level: in (0, 1).

    Returns:
        (lower, upper), each (N,) float64.

    Example:
        >>> lower, upper = gaussian_interval(torch.zeros(1), torch.ones(1))
        >>> round(upper.item(), 4)
        1.96
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level} must be in (0, 1); 0.95 is the usual value")
    mean, variance, _ = _checked_gaussian(mean, variance, mean)
    half = variance.sqrt() * torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)).item()
    return mean - half, mean + half


def interval_coverage(lower: Tensor, upper: Tensor, targets: Tensor) -> float:
    """Share of targets inside their interval, ends included; to be compared with the level the interval claims.

    Args:
        lower: (N,) lower ends, from `gaussian_interval` or from quantiles of samples.
        upper: (N,) upper ends, >= lower.
        targets: (N,) observed values.

    Returns:
        A share in [0, 1].

    Example:
        >>> interval_coverage(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0]), torch.tensor([1.0, 2.0]))
        0.5
    """
    lower, upper, targets = check_finite(lower, "lower"), check_finite(upper, "upper"), check_finite(targets, "targets")
    check_same_length(lower=lower, upper=upper, targets=targets)
    if bool((lower > upper).any()):
        row = int((lower > upper).nonzero()[0])
        raise ValueError(f"lower row {row} is {lower[row].item()} > upper {upper[row].item()}; swap the two ends")
    return int(((lower <= targets) & (targets <= upper)).sum()) / len(targets)


def _checked_gaussian(mean: Tensor, variance: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, variance = check_finite(mean, "mean"), check_finite(variance, "variance")
    targets = check_finite(targets, "targets")
    check_same_length(mean=mean, variance=variance, targets=targets)
    if bool((variance <= 0).any()):
        row = int((variance <= 0).nonzero()[0])
        raise ValueError(
            f"variance row {row} is {variance[row].item()}, must be > 0; add the noise variance of the targets"
        )
    return mean, variance, targets
