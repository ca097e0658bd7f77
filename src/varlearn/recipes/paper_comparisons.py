"""What the paper's other tables say: Bayesian methods, cost, estimators, finetuning, merging, the competition.

As in `paper`, digits are copied as printed; `tests/recipes/test_paper_tex.py` compares them with the paper's source.
"""

from __future__ import annotations

from varlearn.recipes.paper import Figures, Published, parsed

_SCORES = ("accuracy", "nll", "ece", "brier")
# Table 2. The row of VOGN and the row GGN of Table 7 are the same runs.
_IN_DOMAIN = """
cifar10 resnet20 adamw      90.04 0.27 0.589 0.018 0.074 0.002 0.170 0.004
cifar10 resnet20 sgd        91.86 0.14 0.288 0.015 0.040 0.004 0.126 0.004
cifar10 resnet20 bbb-paper  91.09 0.16 0.289 0.005 0.053 0.001 0.139 0.002
cifar10 resnet20 laplace    91.52 0.37 0.284 0.008 0.033 0.002 0.129 0.004
cifar10 resnet20 mc-dropout 91.85 0.17 0.242 0.004 0.008 0.002 0.120 0.002
cifar10 resnet20 swag       92.45 0.23 0.230 0.002 0.024 0.002 0.112 0.002
cifar10 resnet20 vogn       92.37 0.23 0.226 0.005 0.008 0.001 0.111 0.003
cifar10 resnet20 ivon       92.71 0.07 0.219 0.002 0.008 0.001 0.108 0.001
cifar10 resnet20 5*sgd      93.57 0.16 0.198 0.003 0.014 0.001 0.096 0.001
cifar10 resnet20 5*ivon     94.37 0.13 0.179 0.002 0.029 0.001 0.087 0.001
"""

# Table 7, with the names that `optim.hess_approx` and the methods have
_ESTIMATORS = """
cifar10 resnet20 ivon gradsq      88.81 0.31 0.464 0.020 0.070 0.004 0.180 0.006
cifar10 resnet20 vogn gaussnewton 92.37 0.23 0.226 0.005 0.008 0.001 0.111 0.003
cifar10 resnet20 ivon price       92.64 0.13 0.219 0.005 0.009 0.002 0.107 0.002
"""
_ESTIMATOR_MEGABYTES = {"gradsq": 363.0, "gaussnewton": 645.0, "price": 363.0}

# Table 6: hours and GB
_COST = """
resnet20  adamw 0.38  1.7
resnet20  sgd   0.38  1.7
resnet20  vogn  0.68  2.0
resnet20  ivon  0.38  1.7
gpt2-125m adamw 15.0 21.8
gpt2-125m ivon  18.5 23.2
gpt2-355m adamw 37.5 23.7
gpt2-355m ivon  44.7 27.7
"""

# Table 14, in the order of the final ranking, and the present IVON. "W2" is the mean Wasserstein-1 distance.
_COMPETITION = """
6*ivon-2021 78.7 0.198 88.4 0.099 0.094
multi-swag  77.8 0.219 89.0 0.098 0.166
sae         77.3 0.210 87.5 0.107 0.116
6*ivon      78.2 0.204 89.1 0.097 0.075
"""
_COMPETITION_METRICS = ("cifar_agreement", "cifar_tvd", "medmnist_agreement", "medmnist_tvd", "uci_w2")

GLUE_TASKS = ("mnli", "qnli", "qqp", "rte", "sst2", "mrpc", "cola", "stsb")
# Table 4. "adamw-he" are the figures of He et al. (2023), which the paper could not reproduce.
_GLUE = """
deberta-v3-large adamw     91.3 95.7 93.1 91.0 96.5 91.0 74.8 92.4
deberta-v3-large ivon@mean 91.6 95.7 93.0 91.7 96.9 91.9 75.1 92.6
deberta-v3-large adamw-he  91.8 96.0 93.0 92.7 96.9 92.2 75.3 93.0
roberta-base     adamw     87.7 92.8 90.9 80.9 94.8 85.8 63.6 90.6
roberta-base     ivon@mean 87.8 92.6 90.8 80.6 95.0 87.3 63.3 90.8
"""

MERGED_TASKS = ("imdb", "yelp", "rotten_tomatoes", "sst2", "amazon")
# Table 5: accuracy on each task, their average, and the passes over the data that the Hessian costs, in per cent
_MERGING = """
squared-gradient 93.5 97.0 89.7 92.8 96.6 93.9 100
ivon             93.6 96.9 89.8 92.8 96.7 94.0   0
"""

# Table 12: examples, as printed. Its header has the metrics of CoLA and STS-B the wrong way round.
GLUE_SIZES = {
    "mnli": ("393k", "9.8k"),
    "qnli": ("105k", "5.5k"),
    "qqp": ("364k", "40.4k"),
    "rte": ("2.5k", "277"),
    "sst2": ("67k", "872"),
    "mrpc": ("3.7k", "408"),
    "cola": ("8.5k", "1k"),
    "stsb": ("7k", "1.5k"),
}

# Accuracy of the networks whose leave-one-out loss Figures 5 and 8 follow
LOO_ACCURACY = {
    ("imagenet", "resnet50", "ivon"): 75.0,
    ("imagenet", "resnet50", "adamw"): 74.7,
    ("cifar10", "resnet18", "ivon@mean"): 93.68,
    ("cifar10", "preresnet110", "ivon@mean"): 93.52,
}


def in_domain() -> Figures:
    """Table 2, by (data, model, method); "5*sgd" is a deep ensemble of five, "5*ivon" Multi-IVON.

    >>> in_domain()["cifar10", "resnet20", "swag"]["nll"]
    Published(mean=0.23, std=0.002)
    """
    return parsed(_IN_DOMAIN, 3, _SCORES)


def estimators() -> Figures:
    """Table 7, by (data, model, method, estimator); "memory" is in MB.

    >>> estimators()["cifar10", "resnet20", "ivon", "gradsq"]["memory"].mean
    363.0
    """
    rows = parsed(_ESTIMATORS, 4, _SCORES)
    return {row: values | {"memory": Published(_ESTIMATOR_MEGABYTES[row[3]], None)} for row, values in rows.items()}


def cost() -> Figures:
    """Table 6, by (model, method): "hours" of training and "memory" in GB.

    >>> cost()["gpt2-125m", "ivon"]["hours"].mean
    18.5
    """
    return _plain(_COST, 2, ("hours", "memory"))


def competition() -> Figures:
    """Table 14, by (method,); "6*ivon-2021" is the winner.

    >>> competition()["6*ivon",]["uci_w2"].mean
    0.075
    """
    return _plain(_COMPETITION, 1, _COMPETITION_METRICS)


def glue() -> Figures:
    """Table 4, by (model, method), in per cent.

    >>> glue()["roberta-base", "ivon@mean"]["mrpc"].mean
    87.3
    """
    return _plain(_GLUE, 2, GLUE_TASKS)


def merging() -> Figures:
    """Table 5, by (curvature,), in per cent.

    >>> merging()["ivon",]["average"].mean, merging()["ivon",]["overhead"].mean
    (94.0, 0.0)
    """
    return _plain(_MERGING, 1, (*MERGED_TASKS, "average", "overhead"))


def _plain(text: str, names: int, metrics: tuple[str, ...]) -> Figures:
    """Rows without standard deviations."""
    rows = [line.split() for line in text.strip().splitlines()]
    return {
        tuple(row[:names]): {
            metric: Published(float(value), None) for metric, value in zip(metrics, row[names:], strict=True)
        }
        for row in rows
    }
