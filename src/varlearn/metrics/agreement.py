"""How close a predictive distribution is to a reference one, such as that of Hamiltonian Monte Carlo."""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.metrics.chunks import row_slices
from varlearn.metrics.inputs import check_matrix, checked_rows


def agreement(log_probs: Tensor, reference: Tensor) -> float:
    r"""Share of examples on which both predict the same class, $\frac1N \sum_i [\arg\max p_i = \arg\max q_i]$.

    Args:
        log_probs: (N, C) log-probabilities.
        reference: (N, C) log-probabilities of the reference.

    Returns:
        A share in [0, 1], higher is better; classes of equal probability count as the lowest index.

    Example:
        >>> p, q = torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[0.6, 0.4], [0.7, 0.3]])
        >>> agreement(p.log(), q.log())
        0.5
    """
    _check_pair(log_probs, reference)
    same = 0
    for (_, lp), (_, lq) in zip(checked_rows(log_probs), checked_rows(reference, "reference"), strict=True):
        same += int((lp.argmax(-1) == lq.argmax(-1)).sum())
    return same / len(log_probs)


def total_variation(log_probs: Tensor, reference: Tensor) -> float:
    r"""Mean total variation distance, $\frac1N \sum_i \frac12 \sum_c |p_{ic} - q_{ic}|$.

    Args:
        log_probs: (N, C) log-probabilities.
        reference: (N, C) log-probabilities of the reference.

    Returns:
        A value in [0, 1], lower is better.

    Example:
        >>> p, q = torch.tensor([[0.75, 0.25], [1.0, 0.0]]), torch.tensor([[0.25, 0.75], [1.0, 0.0]])
        >>> round(total_variation(p.log(), q.log()), 6)  # (1/2 + 0) / 2
        0.25
    """
    return total_variation_per_example(log_probs, reference).mean().item()


def total_variation_per_example(log_probs: Tensor, reference: Tensor) -> Tensor:
    """Total variation distance of each pair of rows.

    Args:
        log_probs: (N, C) log-probabilities.
        reference: (N, C) log-probabilities of the reference.

    Returns:
        (N,) float64.

    Example:
        >>> total_variation_per_example(torch.tensor([[0.75, 0.25]]).log(), torch.tensor([[0.25, 0.75]]).log())
        tensor([0.5000], dtype=torch.float64)
    """
    _check_pair(log_probs, reference)
    out = torch.empty(len(log_probs), dtype=torch.float64, device=log_probs.device)
    for (rows, lp), (_, lq) in zip(checked_rows(log_probs), checked_rows(reference, "reference"), strict=True):
        out[rows] = (lp.exp() - lq.exp()).abs().sum(-1) / 2
    return out


def w2_competition(samples: Tensor, reference: Tensor) -> float:
    r"""What the approximate-inference competition calls "W2": the mean 1-D Wasserstein-**1** distance.

    $\frac1N \sum_i \int_0^1 |F_i^{-1}(u) - G_i^{-1}(u)| du$ between the two sets of samples of every input. The name is
    kept to compare with the published table; `w2` is the distance the name stands for.

    Args:
        samples: (S, N) predictive samples of a scalar for N inputs, in the unit of the targets.
        reference: (R, N) samples of the reference; R need not equal S.

    Returns:
        A distance in the unit of the samples, lower is better.

    Example:
        >>> w2_competition(torch.tensor([[0.0], [4.0]]), torch.tensor([[1.0], [1.0]]))  # (1 + 3) / 2
        2.0
    """
    return wasserstein_per_example(samples, reference, order=1).mean().item()


def w2(samples: Tensor, reference: Tensor) -> float:
    r"""Mean 1-D Wasserstein-2 distance, $\frac1N \sum_i \sqrt{\int_0^1 (F_i^{-1}(u) - G_i^{-1}(u))^2 du}$.

    Args:
        samples: (S, N) predictive samples of a scalar for N inputs, in the unit of the targets.
        reference: (R, N) samples of the reference; R need not equal S.

    Returns:
        A distance in the unit of the samples, lower is better; at least `w2_competition`.

    Example:
        >>> round(w2(torch.tensor([[0.0], [4.0]]), torch.tensor([[1.0], [1.0]])), 4)  # sqrt((1 + 9) / 2)
        2.2361
    """
    return wasserstein_per_example(samples, reference, order=2).mean().item()


def wasserstein_per_example(samples: Tensor, reference: Tensor, order: int) -> Tensor:
    r"""The 1-D Wasserstein distance $W_p$ of each column, $(\int_0^1 |F^{-1}(u) - G^{-1}(u)|^p du)^{1/p}$, exactly.

    Both quantile functions are step functions, so the integral is a sum over the union of their steps.

    Args:
        samples: (S, N) samples for N inputs.
        reference: (R, N) samples for the same inputs.
        order: p >= 1.

    Returns:
        (N,) float64.

    Example:
        >>> wasserstein_per_example(torch.tensor([[0.0], [3.0]]), torch.tensor([[0.0], [0.0], [3.0]]), order=1)
        tensor([0.5000], dtype=torch.float64)
    """
    if order < 1:
        raise ValueError(f"order={order} must be >= 1; 1 and 2 are the usual ones")
    check_matrix(samples, "samples", "(S, N)")
    check_matrix(reference, "reference", "(R, N)")
    if samples.shape[1] != reference.shape[1]:
        raise ValueError(
            f"samples has {samples.shape[1]} columns and reference {reference.shape[1]}, must be equal; "
            "pass (samples, inputs) matrices for the same inputs"
        )
    s, r = len(samples), len(reference)
    # steps of both quantile functions in units of 1 / (s r), so that equal ones are equal integers
    steps = torch.cat([torch.arange(s + 1) * r, torch.arange(r + 1) * s]).unique().to(samples.device)
    width = steps.diff().double() / (s * r)
    of_sample, of_reference = steps[:-1] // r, steps[:-1] // s
    out = torch.empty(samples.shape[1], dtype=torch.float64, device=samples.device)
    for columns in row_slices(samples.shape[1], s + r):
        a, b = _sorted_columns(samples, columns, "samples"), _sorted_columns(reference, columns, "reference")
        gap = (a[of_sample] - b[of_reference]).abs()
        out[columns] = (width @ gap**order) ** (1 / order)
    return out


def _sorted_columns(values: Tensor, columns: slice, name: str) -> Tensor:
    chunk = values[:, columns].detach().double()
    bad = (~chunk.isfinite()).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise ValueError(
            f"{name} row {row} is {chunk[row, column].item()} in column {columns.start + column}, must be finite; "
            "remove it or repair what produced it"
        )
    return chunk.sort(0).values


def _check_pair(log_probs: Tensor, reference: Tensor) -> None:
    check_matrix(log_probs, "log_probs", "(N, C)")
    if log_probs.shape != reference.shape:
        raise ValueError(
            f"log_probs has shape {tuple(log_probs.shape)} and reference {tuple(reference.shape)}, must be equal; "
            "pass predictions of the same examples and classes"
        )
