"""NLL after temperature scaling: how good predictions are apart from how sure they are."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from varlearn.metrics.inputs import check_targets, checked_rows

_LEAST = math.log(1e-45)  # log-probabilities below it, and those of 0, count as it
_SPLITS = 5
_STEPS = 50


def scaled_nll(log_probs: Tensor, targets: Tensor, seed: int = 0) -> float:
    r"""NLL of $p^{1/T}$, normalized, with T fitted to one half of the examples and scored on the other.

    Test-time cross-validation (Ashukha et al., 2020): halves are drawn 5 times at random, each half is scored with the
    temperature of the other, and the 10 values are averaged. Plain NLL ranks methods by their temperature as much as by
    what they know; this one does not.

    Args:
        log_probs: (N, C) log-probabilities, N >= 2.
        targets: (N,) class indices.
        seed: of the halves.

    Returns:
        A value in nats. Probabilities below 1e-45 count as 1e-45. Infinity where a half without a mistake, whose best T
        is 0, is scored on a half with one; use more examples then.

    Example:
        Sharper by a factor of 3 is the same at the best temperature:

        >>> log_probs, targets = torch.tensor([[0.9, 0.1]] * 40).log(), torch.tensor([0] * 30 + [1] * 10)
        >>> sharp = torch.log_softmax(3 * log_probs, -1)
        >>> abs(scaled_nll(sharp, targets) - scaled_nll(log_probs, targets)) < 1e-4
        True
    """
    check_targets(log_probs, targets)
    if len(targets) < 2:
        raise ValueError(f"{len(targets)} example cannot be halved; scaled_nll needs 2 or more")
    rows = torch.cat([part for _, part in checked_rows(log_probs)]).clamp_min(_LEAST)
    targets = targets.long()
    missed = rows.gather(-1, targets[:, None])[:, 0] < rows.amax(-1)
    generator = torch.Generator().manual_seed(seed)
    values = []
    for _ in range(_SPLITS):
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        halves = order.tensor_split(2)
        for fitted, scored in (halves, halves[::-1]):
            if not bool(missed[fitted].any()) and bool(missed[scored].any()):
                return math.inf
            sharpness = fitted_sharpness(rows[fitted], targets[fitted])
            scaled = torch.log_softmax(sharpness * rows[scored], -1)
            values.append(-scaled.gather(-1, targets[scored, None]).mean().item())
    return math.fsum(values) / len(values)


def fitted_sharpness(rows: Tensor, targets: Tensor) -> float:
    r"""The $b = 1/T$ with the lowest NLL of $p^b / \sum p^b$, between 0 and 1,000.

    The NLL is convex in b. Its derivative is the mean of $E_{p_b}[\log p] - \log p_y$; Newton's method finds its zero
    within an interval that shrinks.

    Args:
        rows: (N, C) finite log-probabilities, float64.
        targets: (N,) class indices.

    >>> rows = torch.tensor([[0.8, 0.2]] * 4).double().log()  # right in 3 of 4: p should be 0.75
    >>> b = fitted_sharpness(rows, torch.tensor([0, 0, 0, 1]))
    >>> round(torch.softmax(b * rows[0], 0)[0].item(), 6)
    0.75
    """
    chosen = rows.gather(-1, targets[:, None]).mean().item()
    low, high, b = 0.0, 1_000.0, 1.0
    for _ in range(_STEPS):
        probs = torch.softmax(b * rows, -1)
        mean = (probs * rows).sum(-1)
        slope = mean.mean().item() - chosen
        curvature = ((probs * rows.square()).sum(-1) - mean.square()).mean().item()
        low, high = (b, high) if slope < 0 else (low, b)
        step = b - slope / curvature if curvature > 0 else math.inf
        after = step if low < step < high else (low + high) / 2
        if abs(after - b) <= 1e-9 * max(1.0, b):
            return after
        b = after
    return b
