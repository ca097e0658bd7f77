"""How a large input is cut into pieces, and how the values of the pieces combine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

CHUNK_ELEMENTS = 1 << 22
"""Elements converted to float64 at a time: 32 MiB per temporary, whatever the size of the input."""


def row_slices(rows: int, width: int = 1) -> Iterator[slice]:
    """Cut `rows` rows of `width` elements into consecutive slices of at most `CHUNK_ELEMENTS` elements.

    Args:
        rows: number of rows, >= 0.
        width: elements per row, >= 1; a row wider than the limit still comes whole.

    Yields:
        Slices that cover 0 .. rows - 1 once, in order.

    Example:
        >>> list(row_slices(3, width=CHUNK_ELEMENTS // 2))
        [slice(0, 2, None), slice(2, 3, None)]
    """
    step = max(1, CHUNK_ELEMENTS // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def merge_means(parts: Iterable[tuple[float, float]]) -> float:
    r"""Combine the means of chunks into the mean of the whole, $\sum_i w_i v_i / \sum_i w_i$.

    A metric that is a mean over examples (accuracy, NLL, Brier, entropy, total variation, CRPS, coverage, ...) can be
    computed chunk by chunk: keep the pair (value, number of examples) of each. Those that are a function of a mean
    merge under it: an RMSE as its square, a perplexity as its logarithm. Metrics that sort (ECE with equal mass,
    AUROC, AURC, ...) do not merge: concatenate their per-example inputs. Equal-width calibration bins merge with
    `merge_reliability`.

    Args:
        parts: pairs (value, weight), weight >= 0. A part of weight 0 is ignored, also where its value is nan.

    Returns:
        The weighted mean, summed exactly (`math.fsum`).

    Example:
        >>> merge_means([(1.0, 3), (2.0, 1)])
        1.25
    """
    kept = []
    for value, weight in parts:
        if not (weight >= 0 and math.isfinite(weight)):
            raise ValueError(f"weight={weight} must be finite and >= 0; use the number of examples of the chunk")
        if weight > 0:
            kept.append((float(value), float(weight)))
    if not kept:
        raise ValueError("merge_means got no part with weight > 0; pass at least one non-empty chunk")
    total = math.fsum(weight for _, weight in kept)
    if not all(math.isfinite(value) for value, _ in kept):
        return sum(value * weight for value, weight in kept) / total
    return math.fsum(value * weight for value, weight in kept) / total
