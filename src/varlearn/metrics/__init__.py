"""Metrics: pure functions on tensors. They need torch only, keep no state, draw nothing.

Class predictions are log-probabilities, `log_probs` (N, C) in float64, float32, float16 or bfloat16, with integer
`targets` (N,); `from_probs` converts probabilities. A scalar metric returns a Python float, its `*_per_example` variant
a float64 vector. Accumulation is in float64 whatever the input, in chunks of bounded size; chunks of a data set combine
with `merge_means` and `merge_reliability`.

A row with a nan, or one whose probabilities do not sum to 1 (within 1e-5 in float64, 1e-4 in float32, 1e-2 in float16,
5e-2 in bfloat16), is refused by its index. So is an empty input: a metric of nothing is undefined.
"""

from varlearn.metrics.agreement import (
    agreement,
    total_variation,
    total_variation_per_example,
    w2,
    w2_competition,
    wasserstein_per_example,
)
from varlearn.metrics.bootstrap import BootstrapInterval, bootstrap_interval
from varlearn.metrics.calibration import (
    ReliabilityCurve,
    adaptive_ece,
    classwise_ece,
    ece,
    ece_from_curve,
    mce,
    mce_from_curve,
    merge_reliability,
    reliability_curve,
)
from varlearn.metrics.chunks import merge_means
from varlearn.metrics.classification import (
    accuracy,
    brier,
    brier_per_example,
    correct_per_example,
    entropy_per_example,
    max_log_prob,
    nll,
    nll_per_example,
    predictive_entropy,
    top_k_accuracy,
)
from varlearn.metrics.data_shift import input_shift
from varlearn.metrics.glue_scores import f1, matthews_correlation, pearson, spearman
from varlearn.metrics.inputs import from_probs
from varlearn.metrics.language import nll_per_token, perplexity
from varlearn.metrics.ood import aupr_in, aupr_out, auroc, detection_error, fpr95_paper, fpr_at_tpr
from varlearn.metrics.regression import (
    crps_gaussian,
    crps_gaussian_per_example,
    crps_samples,
    crps_samples_per_example,
    gaussian_interval,
    gaussian_nll,
    gaussian_nll_per_example,
    interval_coverage,
    rmse,
)
from varlearn.metrics.selective import RiskCoverage, aurc, misclassification_auroc, risk_coverage
from varlearn.metrics.temperature_scaling import scaled_nll

__all__ = [
    "BootstrapInterval",
    "ReliabilityCurve",
    "RiskCoverage",
    "accuracy",
    "adaptive_ece",
    "agreement",
    "aupr_in",
    "aupr_out",
    "aurc",
    "auroc",
    "bootstrap_interval",
    "brier",
    "brier_per_example",
    "classwise_ece",
    "correct_per_example",
    "crps_gaussian",
    "crps_gaussian_per_example",
    "crps_samples",
    "crps_samples_per_example",
    "detection_error",
    "ece",
    "ece_from_curve",
    "entropy_per_example",
    "f1",
    "fpr95_paper",
    "fpr_at_tpr",
    "from_probs",
    "gaussian_interval",
    "gaussian_nll",
    "gaussian_nll_per_example",
    "input_shift",
    "interval_coverage",
    "matthews_correlation",
    "max_log_prob",
    "mce",
    "mce_from_curve",
    "merge_means",
    "merge_reliability",
    "misclassification_auroc",
    "nll",
    "nll_per_example",
    "nll_per_token",
    "pearson",
    "perplexity",
    "predictive_entropy",
    "reliability_curve",
    "risk_coverage",
    "rmse",
    "scaled_nll",
    "spearman",
    "top_k_accuracy",
    "total_variation",
    "total_variation_per_example",
    "w2",
    "w2_competition",
    "wasserstein_per_example",
]
