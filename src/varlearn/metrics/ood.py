"""Out-of-domain detection from two score vectors: in-domain is the positive class, a higher score means in-domain.

An example is accepted as in-domain where its score is >= the threshold. TPR is the share of in-domain examples
accepted, FPR the share of out-of-domain ones. Every function considers all distinct thresholds, so ties are exact.
All values are shares in [0, 1] (the paper prints percent).
"""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.metrics.inputs import check_vector
from varlearn.metrics.ranking import RankCounts, area_under_roc, average_precision, rank_counts


def fpr_at_tpr(in_scores: Tensor, out_scores: Tensor, tpr: float = 0.95) -> float:
    """The smallest FPR among the thresholds whose TPR is at least `tpr`: the FPR at 95% TPR by definition.

    Args:
        in_scores: (P,) scores of in-domain examples.
        out_scores: (M,) scores of out-of-domain examples.
        tpr: 0 < tpr <= 1.

    Returns:
        A share in [0, 1], lower is better.

    Example:
        >>> fpr_at_tpr(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([3.5, 2.0, 0.0, 0.0]), tpr=0.75)  # at 2
        0.5
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr={tpr} must be in (0, 1]; the usual value is 0.95")
    true, false = _counts(in_scores, out_scores)
    # k / P >= 0.95 in float64 is exact where it matters: division rounds correctly, so 19 / 20 is the double 0.95
    first = int((true.double() / true[-1] >= tpr).nonzero()[0])
    return int(false[first]) / int(false[-1])


def fpr95_paper(in_scores: Tensor, out_scores: Tensor) -> float:
    r"""A reading of the paper's "FPR@95%" column: the mean FPR of the ROC curve's vertices with TPR <= 0.95.

    This is not the FPR at 95% TPR (use `fpr_at_tpr`) but an average over the stricter thresholds, usually much smaller.
    It exists to compare with the published column only. Precisely: the ROC curve starts at (0, 0) and has one point
    (FPR, TPR) per distinct score. A point is left out where the step to it and the step after it add the same numbers
    of accepted examples of either kind, as in the middle of a run of in-domain examples; (0, 0) and the points of the
    highest and the lowest score stay. The result is the plain mean of the FPR over the remaining points with
    TPR <= 0.95, each counted once.

    That the column averages the curve below 95% TPR is known, how the points are weighted is not: counting vertices is
    an unconfirmed choice. Simulated binormal curves with the AUROC and detection error of the 14 published rows put it
    2 (SVHN) and 4 (Flowers102) percentage points above the column on average; counting every point instead is 8 above
    and 5 below, averaging uniformly in TPR 12 below. Averages over a grid of thresholds were not compared: they depend
    on the scores themselves. Do not read a difference of a few points from the published column as an effect.

    Args:
        in_scores: (P,) scores of in-domain examples.
        out_scores: (M,) scores of out-of-domain examples.

    Returns:
        A share in [0, 1].

    Example:
        >>> fpr95_paper(torch.tensor([4.0, 2.0]), torch.tensor([3.0, 1.0]))  # the points (0, 0), (0, .5), (.5, .5)
        0.16666666666666666
    """
    true, false = _counts(in_scores, out_scores)
    kept = torch.ones_like(true, dtype=torch.bool)
    kept[1:-1] = (true.diff(n=2) != 0) | (false.diff(n=2) != 0)
    below = kept & (true.double() / true[-1] <= 0.95)
    points = int(below.sum()) + 1  # (0, 0) too, which adds nothing to the sum
    return int(false[below].sum()) / (points * int(false[-1]))


def detection_error(in_scores: Tensor, out_scores: Tensor) -> float:
    r"""The smallest error of a detector when both kinds are equally likely, $\min_t \frac12 (1 - TPR_t + FPR_t)$.

    At the threshold of `fpr_at_tpr` it is at most (FPR + 1 - 0.95) / 2, hence so is the minimum.

    Args:
        in_scores: (P,) scores of in-domain examples.
        out_scores: (M,) scores of out-of-domain examples.

    Returns:
        A share in [0, 0.5]; accepting nothing or everything gives 0.5.

    Example:
        >>> detection_error(torch.tensor([4.0, 2.0]), torch.tensor([3.0, 1.0]))  # at 4: (1/2 + 0) / 2
        0.25
    """
    true, false = _counts(in_scores, out_scores)
    error = (1 - true.double() / true[-1] + false.double() / false[-1]) / 2
    return error.min().item()


def auroc(in_scores: Tensor, out_scores: Tensor) -> float:
    r"""Area under the ROC curve: the probability that an in-domain score beats an out-of-domain one, ties half.

    Args:
        in_scores: (P,) scores of in-domain examples.
        out_scores: (M,) scores of out-of-domain examples.

    Returns:
        A share in [0, 1], 0.5 for chance.

    Example:
        >>> auroc(torch.tensor([3.0, 2.0]), torch.tensor([2.0, 1.0]))  # (1 + 1 + 1/2 + 1) / 4
        0.875
    """
    return area_under_roc(_counts(in_scores, out_scores))


def aupr_in(in_scores: Tensor, out_scores: Tensor) -> float:
    """Area under the precision-recall curve with the in-domain examples as positives (average precision).

    Args:
        in_scores: (P,) scores of in-domain examples.
        out_scores: (M,) scores of out-of-domain examples.

    Returns:
        A share in (0, 1]; a constant score gives P / (P + M).

    Example:
        >>> aupr_in(torch.tensor([3.0, 1.0]), torch.tensor([2.0]))  # (1/1 + 2/3) / 2
        0.8333333333333333
    """
    return average_precision(_counts(in_scores, out_scores))


def aupr_out(in_scores: Tensor, out_scores: Tensor) -> float:
    """Area under the precision-recall curve with the out-of-domain examples as positives and the score negated.

    Args:
        in_scores: (P,) scores of in-domain examples.
        out_scores: (M,) scores of out-of-domain examples.

    Returns:
        A share in (0, 1]; a constant score gives M / (P + M).

    Example:
        >>> aupr_out(torch.tensor([3.0, 1.0]), torch.tensor([2.0]))  # from the bottom: 1 in, 2 out -> 1/2
        0.5
    """
    in_scores, out_scores = check_vector(in_scores, "in_scores"), check_vector(out_scores, "out_scores")
    return average_precision(rank_counts(-out_scores, -in_scores))


def _counts(in_scores: Tensor, out_scores: Tensor) -> RankCounts:
    return rank_counts(check_vector(in_scores, "in_scores"), check_vector(out_scores, "out_scores"))
