"""What a metric accepts: log-probabilities that are distributions, targets that are classes, finite vectors.

Everything refused names the offending row, its value, the rule and the cure. Conversions to float64 happen chunk by
chunk, so an input in float16 or bfloat16 is never rounded further and a large one is never copied whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from varlearn.metrics.chunks import row_slices

SUM_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far a row of probabilities may be from summing to 1, by the dtype it is stored in.

Rounding log-probabilities to a format of precision eps moves the sum by at most eps/2 times the entropy of the row
(at most log C), which these bounds leave room for up to vocabularies of 10^5 classes; float64 is as loose as it is
because float64 log-probabilities are often float32 ones that were converted.
"""


def from_probs(probs: Tensor) -> Tensor:
    r"""Check probabilities and give the log-probabilities every metric of this package takes.

    A row within the tolerance of its dtype (float64 1e-5, float32 1e-4, float16 1e-2, bfloat16 5e-2) is divided by
    its sum, so $\log p$ is normalised exactly; a row outside it, a negative entry or a nan is refused. A probability of
    0 becomes -inf.

    Args:
        probs: (N, C) probabilities, any floating dtype.

    Returns:
        (N, C) log-probabilities, float64 for float64 input, else float32.

    Example:
        >>> from_probs(torch.tensor([[0.25, 0.75, 0.0]])).exp()
        tensor([[0.2500, 0.7500, 0.0000]])
        >>> from_probs(torch.tensor([[0.5, 0.5], [0.5, 0.9]]))
        Traceback (most recent call last):
        ValueError: probs row 1 sums to 1.4, must be 1 within 0.0001 (float32); divide each row by its sum
    """
    check_matrix(probs, "probs", "(N, C)")
    tolerance = _tolerance(probs, "probs")
    out = torch.empty_like(probs, dtype=torch.float64 if probs.dtype == torch.float64 else torch.float32)
    for rows in row_slices(*probs.shape):
        p = probs[rows].detach().double()
        lowest, total = p.amin(-1), p.sum(-1)
        if (i := _first(lowest < 0)) is not None:
            raise ValueError(
                f"probs row {rows.start + i} has the entry {lowest[i].item():.6g}, must be >= 0; "
                "log-probabilities go to the metric as they are"
            )
        if (i := _first(~((total - 1).abs() <= tolerance))) is not None:
            raise _not_a_distribution(probs, "probs", rows.start + i, total[i].item(), "divide each row by its sum")
        out[rows] = (p / total[:, None]).log()
    return out


def checked_rows(log_probs: Tensor, name: str = "log_probs") -> Iterator[tuple[slice, Tensor]]:
    """Walk through (N, C) log-probabilities in float64 chunks, refusing rows that are not distributions.

    Args:
        log_probs: (N, C), any floating dtype; -inf means probability 0.
        name: what to call the tensor in errors.

    Yields:
        Pairs (rows, chunk): the slice of rows and their detached float64 values.

    Example:
        >>> [(rows, chunk.shape) for rows, chunk in checked_rows(torch.tensor([[0.0, -float("inf")]]))]
        [(slice(0, 1, None), torch.Size([1, 2]))]
    """
    check_matrix(log_probs, name, "(N, C)")
    tolerance = _tolerance(log_probs, name)
    for rows in row_slices(*log_probs.shape):
        chunk = log_probs[rows].detach().double()
        total = chunk.exp().sum(-1)
        # a nan makes its row's total nan, which `<=` refuses as well
        if (i := _first(~((total - 1).abs() <= tolerance))) is not None:
            raise _not_a_distribution(
                log_probs, name, rows.start + i, total[i].item(), "normalise with log_softmax(-1)"
            )
        yield rows, chunk


def check_targets(log_probs: Tensor, targets: Tensor) -> None:
    """Refuse targets that are not one class index per row of (N, C) log-probabilities.

    Args:
        log_probs: (N, C).
        targets: (N,), an integer dtype, 0 <= target < C.

    Example:
        >>> check_targets(torch.zeros(1, 3), torch.tensor([3]))
        Traceback (most recent call last):
        ValueError: targets row 0 is 3, must be a class in 0 .. 2; drop masked examples and re-index the classes
    """
    check_matrix(log_probs, "log_probs", "(N, C)")
    check_labels(targets, "targets")
    if len(targets) != len(log_probs):
        raise ValueError(
            f"targets has {len(targets)} rows and log_probs {len(log_probs)}, must be equal; pass one per row"
        )
    classes = log_probs.shape[1]
    if (i := _first((targets < 0) | (targets >= classes))) is not None:
        raise ValueError(
            f"targets row {i} is {int(targets[i])}, must be a class in 0 .. {classes - 1}; "
            "drop masked examples and re-index the classes"
        )


def check_labels(labels: Tensor, name: str) -> None:
    """Refuse anything but a non-empty vector of integers.

    Example:
        >>> check_labels(torch.tensor([0.0, 1.0]), "targets")
        Traceback (most recent call last):
        TypeError: targets has dtype torch.float32, must be an integer dtype; convert with .long()
    """
    if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise TypeError(f"{name} has dtype {labels.dtype}, must be an integer dtype; convert with .long()")
    if labels.dim() != 1:
        raise ValueError(f"{name} has shape {tuple(labels.shape)}, must be (N,); flatten it with reshape(-1)")
    if len(labels) == 0:
        raise ValueError(f"{name} is empty, must have at least one row; a metric of no examples is undefined")


def check_vector(values: Tensor, name: str) -> Tensor:
    """Refuse anything but a non-empty floating vector without nan; give it detached, in at least float32.

    Infinities are allowed: scores are compared, not added.

    Args:
        values: (N,), any floating dtype.
        name: what to call the tensor in errors.

    Returns:
        (N,) the same values, float16 and bfloat16 converted to float32 (exactly).

    Example:
        >>> check_vector(torch.tensor([1.0, float("nan")]), "in_scores")
        Traceback (most recent call last):
        ValueError: in_scores row 1 is nan, must be a number; remove it or repair what produced it
    """
    _check_floating(values, name)
    if values.dim() != 1:
        raise ValueError(f"{name} has shape {tuple(values.shape)}, must be (N,); flatten it with reshape(-1)")
    if len(values) == 0:
        raise ValueError(f"{name} is empty, must have at least one row; a metric of no examples is undefined")
    if (i := _first(values.isnan())) is not None:
        raise ValueError(f"{name} row {i} is nan, must be a number; remove it or repair what produced it")
    values = values.detach()
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def check_finite(values: Tensor, name: str) -> Tensor:
    """Like `check_vector`, and infinities are refused too; give the vector in float64.

    Example:
        >>> check_finite(torch.tensor([1.0]), "mean").dtype
        torch.float64
    """
    values = check_vector(values, name)
    if (i := _first(values.isinf())) is not None:
        raise ValueError(f"{name} row {i} is {values[i].item()}, must be finite; remove it or repair what produced it")
    return values.double()


def check_matrix(values: Tensor, name: str, shape: str) -> None:
    """Refuse anything but a floating matrix with at least one row and one column.

    Example:
        >>> check_matrix(torch.zeros(0, 3), "log_probs", "(N, C)")
        Traceback (most recent call last):
        ValueError: log_probs has shape (0, 3), must be (N, C) with at least one row and column; pass a non-empty tensor
    """
    _check_floating(values, name)
    if values.dim() != 2 or values.numel() == 0:
        raise ValueError(
            f"{name} has shape {tuple(values.shape)}, must be {shape} with at least one row and column; "
            + ("pass a non-empty tensor" if values.dim() == 2 else "flatten the leading dimensions with flatten(0, -2)")
        )


def check_same_length(**vectors: Tensor) -> None:
    """Refuse vectors of different lengths.

    Example:
        >>> check_same_length(mean=torch.zeros(2), targets=torch.zeros(3))
        Traceback (most recent call last):
        ValueError: lengths differ: mean 2, targets 3; pass one value per example in each
    """
    if len({len(vector) for vector in vectors.values()}) > 1:
        lengths = ", ".join(f"{name} {len(vector)}" for name, vector in vectors.items())
        raise ValueError(f"lengths differ: {lengths}; pass one value per example in each")


def _check_floating(values: Tensor, name: str) -> None:
    if not values.dtype.is_floating_point:
        raise TypeError(f"{name} has dtype {values.dtype}, must be a floating dtype; convert with .float()")


def _tolerance(values: Tensor, name: str) -> float:
    if values.dtype not in SUM_TOLERANCE:
        raise TypeError(f"{name} has dtype {values.dtype}, must be float64, float32, float16 or bfloat16; convert it")
    return SUM_TOLERANCE[values.dtype]


def _not_a_distribution(values: Tensor, name: str, row: int, total: float, cure: str) -> ValueError:
    if math.isnan(total):
        column = int(values[row].isnan().nonzero()[0])
        return ValueError(f"{name} row {row} is nan in column {column}, must be a number; repair what produced it")
    sums = "sums to" if name == "probs" else "has probabilities that sum to"
    dtype = str(values.dtype).removeprefix("torch.")
    rule = f"must be 1 within {SUM_TOLERANCE[values.dtype]:g} ({dtype})"
    return ValueError(f"{name} row {row} {sums} {total:.6g}, {rule}; {cure}")


def _first(bad: Tensor) -> int | None:
    """The index of the first True of a vector."""
    return int(bad.nonzero()[0]) if bool(bad.any()) else None
