"""What the paper's tables say: mean and standard deviation over five seeds, copied digit by digit.

A line holds data set, network and method, then mean and standard deviation of each metric in turn. Accuracies and the
columns of Table 3 are in per cent. "ivon@mean" is the prediction at the posterior's mean, "ivon" the average over 64
samples. AdamW with PreResNet-110 on TinyImageNet converged for one seed of five, hence its deviation of 0.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """A figure of the paper: mean and standard deviation; the deviation is None where the paper gives none."""

    mean: float
    std: float | None


Row = tuple[str, ...]
Figures = dict[Row, dict[str, Published]]

_IMAGE_METRICS = ("accuracy", "top5_accuracy", "nll", "ece", "brier")
# Table 9 (CIFAR-10), Table 10 (CIFAR-100), Table 11 (TinyImageNet), Table 1 (ImageNet; its other rows are those above)
_IMAGES = """
cifar10      resnet20     adamw      90.04  0.27 99.62 0.03 0.589 0.018 0.074 0.002 0.170 0.004
cifar10      resnet20     adahessian 91.46  0.06 99.71 0.02 0.477 0.018 0.061 0.001 0.144 0.001
cifar10      resnet20     sgd        91.86  0.14 99.70 0.08 0.288 0.015 0.040 0.004 0.126 0.003
cifar10      resnet20     ivon@mean  92.53  0.04 99.77 0.05 0.256 0.005 0.034 0.001 0.115 0.001
cifar10      resnet20     ivon       92.71  0.07 99.78 0.03 0.219 0.002 0.008 0.001 0.108 0.001
cifar10      densenet121  adamw      92.41  0.26 99.72 0.04 0.594 0.022 0.062 0.002 0.135 0.005
cifar10      densenet121  adahessian 92.95  0.87 99.72 0.14 0.514 0.028 0.056 0.006 0.124 0.014
cifar10      densenet121  sgd        92.54  0.30 99.62 0.04 0.328 0.008 0.050 0.003 0.123 0.003
cifar10      densenet121  ivon@mean  93.31  0.31 99.74 0.03 0.282 0.014 0.042 0.003 0.110 0.004
cifar10      densenet121  ivon       93.53  0.26 99.78 0.04 0.200 0.007 0.009 0.001 0.096 0.003
cifar10      preresnet110 adamw      92.39  0.27 99.69 0.05 0.653 0.024 0.064 0.003 0.137 0.005
cifar10      preresnet110 adahessian 93.76  0.25 99.78 0.03 0.431 0.021 0.049 0.002 0.109 0.004
cifar10      preresnet110 sgd        93.70  0.15 99.66 0.08 0.298 0.010 0.045 0.001 0.107 0.002
cifar10      preresnet110 ivon@mean  93.99  0.08 99.80 0.03 0.259 0.008 0.042 0.001 0.100 0.002
cifar10      preresnet110 ivon       94.02  0.14 99.84 0.03 0.180 0.003 0.010 0.001 0.087 0.001
cifar10      resnet18     adamw      92.40  0.32 99.69 0.05 0.676 0.006 0.064 0.003 0.137 0.005
cifar10      resnet18     adahessian 88.66  1.51 99.38 0.13 0.569 0.037 0.081 0.008 0.190 0.023
cifar10      resnet18     sgd        94.03  0.14 99.72 0.03 0.282 0.009 0.043 0.002 0.101 0.003
cifar10      resnet18     ivon@mean  94.17  0.08 99.78 0.04 0.305 0.007 0.045 0.001 0.102 0.002
cifar10      resnet18     ivon       94.32  0.13 99.84 0.03 0.175 0.002 0.010 0.001 0.084 0.001
cifar100     resnet20     adamw      60.76  0.47 86.81 0.48 1.931 0.044 0.202 0.004 0.580 0.008
cifar100     resnet20     adahessian 64.19  0.28 88.68 0.39 1.612 0.033 0.167 0.007 0.521 0.004
cifar100     resnet20     sgd        67.23  0.35 90.75 0.11 1.173 0.021 0.059 0.008 0.441 0.005
cifar100     resnet20     ivon@mean  67.87  0.55 90.95 0.10 1.168 0.012 0.069 0.007 0.438 0.005
cifar100     resnet20     ivon       68.28  0.50 91.27 0.05 1.113 0.010 0.018 0.003 0.425 0.005
cifar100     densenet121  adamw      65.47  0.93 88.74 0.80 2.967 0.104 0.264 0.007 0.587 0.015
cifar100     densenet121  adahessian 71.02  0.57 92.00 0.17 2.379 0.038 0.222 0.005 0.494 0.010
cifar100     densenet121  sgd        70.74  0.49 91.82 0.10 1.230 0.012 0.131 0.004 0.427 0.006
cifar100     densenet121  ivon@mean  72.67  0.43 92.86 0.14 1.118 0.017 0.119 0.002 0.397 0.005
cifar100     densenet121  ivon       73.68  0.37 93.31 0.15 0.940 0.012 0.022 0.002 0.361 0.004
cifar100     preresnet110 adamw      65.88  0.84 88.34 0.56 2.893 0.088 0.258 0.006 0.578 0.014
cifar100     preresnet110 adahessian 72.43  0.36 91.92 0.38 1.844 0.044 0.194 0.004 0.452 0.008
cifar100     preresnet110 sgd        74.19  0.11 92.41 0.14 1.204 0.012 0.137 0.002 0.393 0.004
cifar100     preresnet110 ivon@mean  75.23  0.23 93.45 0.16 1.149 0.010 0.136 0.002 0.380 0.003
cifar100     preresnet110 ivon       75.81  0.18 93.93 0.19 0.884 0.007 0.030 0.003 0.336 0.001
cifar100     resnet18     adamw      64.12  0.43 86.85 0.51 3.357 0.071 0.278 0.005 0.615 0.008
cifar100     resnet18     adahessian 56.42  6.22 80.56 4.81 2.503 0.261 0.258 0.014 0.666 0.071
cifar100     resnet18     sgd        74.46  0.17 92.66 0.06 1.083 0.007 0.113 0.001 0.376 0.001
cifar100     resnet18     ivon@mean  74.51  0.24 92.74 0.19 1.284 0.013 0.152 0.003 0.399 0.002
cifar100     resnet18     ivon       75.14  0.34 93.30 0.19 0.912 0.009 0.021 0.003 0.344 0.003
tinyimagenet resnet20     adamw      46.62  0.78 72.71 0.75 2.387 0.042 0.121 0.004 0.692 0.009
tinyimagenet resnet20     adahessian 50.06  0.53 76.09 0.29 2.120 0.016 0.084 0.007 0.642 0.004
tinyimagenet resnet20     sgd        51.08  0.22 77.17 0.25 1.989 0.007 0.020 0.003 0.622 0.002
tinyimagenet resnet20     ivon@mean  50.71  0.38 76.82 0.41 2.014 0.017 0.020 0.006 0.629 0.005
tinyimagenet resnet20     ivon       50.85  0.42 76.92 0.37 2.017 0.016 0.060 0.005 0.632 0.004
tinyimagenet densenet121  adamw      50.01  0.28 74.76 0.32 5.515 0.112 0.385 0.003 0.851 0.004
tinyimagenet densenet121  adahessian 43.66 10.76 69.86 9.69 3.142 0.320 0.189 0.150 0.772 0.044
tinyimagenet densenet121  sgd        56.57  1.00 80.46 0.81 1.913 0.056 0.126 0.008 0.585 0.012
tinyimagenet densenet121  ivon@mean  58.47  0.10 82.58 0.23 1.675 0.008 0.046 0.004 0.542 0.003
tinyimagenet densenet121  ivon       58.90  0.34 82.69 0.35 1.644 0.012 0.035 0.002 0.536 0.003
tinyimagenet preresnet110 adamw      50.65   0.0 74.94  0.0 4.487   0.0 0.357   0.0 0.812   0.0
tinyimagenet preresnet110 adahessian 55.03  0.53 78.49 0.34 2.971 0.064 0.272 0.005 0.690 0.008
tinyimagenet preresnet110 sgd        59.39  0.50 81.34 0.30 2.040 0.040 0.176 0.006 0.577 0.007
tinyimagenet preresnet110 ivon@mean  60.85  0.39 83.89 0.14 1.584 0.009 0.053 0.002 0.514 0.003
tinyimagenet preresnet110 ivon       61.25  0.48 84.13 0.17 1.550 0.009 0.049 0.002 0.511 0.003
tinyimagenet resnet18     adamw      47.33  0.90 71.54 0.95 6.823 0.235 0.421 0.008 0.913 0.018
tinyimagenet resnet18     adahessian 51.80  0.29 75.01 0.10 3.416 0.028 0.304 0.002 0.748 0.005
tinyimagenet resnet18     sgd        61.39  0.18 82.30 0.22 1.811 0.010 0.138 0.002 0.536 0.002
tinyimagenet resnet18     ivon@mean  62.41  0.15 83.77 0.18 1.776 0.018 0.150 0.005 0.532 0.002
tinyimagenet resnet18     ivon       62.68  0.16 84.12 0.24 1.528 0.010 0.019 0.004 0.491 0.001
imagenet     resnet50     adamw      75.16  0.14 92.37 0.03 1.018 0.003 0.066 0.002 0.349 0.002
imagenet     resnet50     sgd        76.63  0.45 93.21 0.25 0.917 0.026 0.038 0.009 0.326 0.006
imagenet     resnet50     ivon@mean  77.30  0.08 93.58 0.05 0.884 0.002 0.035 0.002 0.316 0.001
imagenet     resnet50     ivon       77.46  0.07 93.68 0.04 0.869 0.002 0.022 0.002 0.315 0.001
"""

_OOD_METRICS = ("fpr95_paper", "detection_error", "auroc", "aupr_in", "aupr_out")
# Table 3: ResNet-20 trained on CIFAR-10, asked about SVHN and Flowers102. The FPR column averages the ROC curve below
# a TPR of 95% instead of reading it there, hence its name.
_OOD = """
cifar10 resnet20 sgd              svhn 20.7 1.6 18.8 0.9 86.7 1.0 81.8 1.4 91.8 0.7
cifar10 resnet20 bbb              svhn 24.5 0.7 17.8 0.3 87.0 0.3 83.4 0.4 91.3 0.4
cifar10 resnet20 laplace          svhn 19.8 1.7 18.8 1.0 86.9 1.1 81.9 1.5 92.0 0.8
cifar10 resnet20 mc-dropout       svhn 20.7 1.3 17.0 0.6 88.0 0.8 84.6 0.9 92.1 0.7
cifar10 resnet20 swag             svhn 19.8 2.2 16.6 1.0 88.9 1.1 85.3 1.2 93.0 0.9
cifar10 resnet20 vogn             svhn 17.2 1.0 16.5 0.4 89.3 0.6 85.3 0.6 93.5 0.5
cifar10 resnet20 ivon             svhn 17.4 0.8 16.6 0.5 89.2 0.4 85.2 0.6 93.4 0.4
cifar10 resnet20 sgd        flowers102 22.1 0.5 20.7 0.4 86.3 0.3 92.1 0.2 75.4 0.4
cifar10 resnet20 bbb        flowers102 22.2 0.8 19.5 0.7 88.2 0.7 93.1 0.5 79.8 0.9
cifar10 resnet20 laplace    flowers102 20.5 1.1 20.1 0.6 86.9 0.7 92.4 0.4 76.4 1.3
cifar10 resnet20 mc-dropout flowers102 20.3 0.8 19.6 1.1 87.8 0.9 93.0 0.7 78.4 1.1
cifar10 resnet20 swag       flowers102 19.5 0.8 18.1 0.5 89.3 0.6 93.9 0.4 81.0 0.9
cifar10 resnet20 vogn       flowers102 18.1 0.8 18.3 0.3 89.0 0.4 93.8 0.3 80.3 0.7
cifar10 resnet20 ivon       flowers102 17.8 0.5 18.1 0.5 89.0 0.5 93.8 0.3 80.2 0.8
"""

_HESS_INIT_METRICS = ("accuracy", "nll", "ece", "brier")
# Table 8: IVON from different h0
_HESS_INIT = """
cifar10 resnet20 ivon 0.001  9.89  0.24 2.3027 0.0001 0.0033 0.0024 0.9000 0.0000
cifar10 resnet20 ivon 0.002 43.95 31.24 1.4919 0.7403 0.0495 0.0410 0.6328 0.2440
cifar10 resnet20 ivon 0.005 82.78  0.50 0.5612 0.0093 0.1098 0.0024 0.2660 0.0049
cifar10 resnet20 ivon  0.01 86.74  0.15 0.4477 0.0056 0.1019 0.0006 0.2108 0.0028
cifar10 resnet20 ivon  0.02 89.60  0.35 0.3598 0.0082 0.0871 0.0032 0.1690 0.0034
cifar10 resnet20 ivon  0.05 91.72  0.09 0.2777 0.0035 0.0604 0.0030 0.1318 0.0015
cifar10 resnet20 ivon   0.1 92.25  0.17 0.2419 0.0026 0.0388 0.0031 0.1174 0.0017
cifar10 resnet20 ivon   0.2 92.44  0.18 0.2243 0.0043 0.0186 0.0012 0.1106 0.0020
cifar10 resnet20 ivon   0.5 92.71  0.07 0.2173 0.0045 0.0066 0.0015 0.1069 0.0012
cifar10 resnet20 ivon     1 92.61  0.08 0.2329 0.0042 0.0154 0.0017 0.1111 0.0011
cifar10 resnet20 ivon     2 92.46  0.23 0.2411 0.0074 0.0251 0.0032 0.1125 0.0025
cifar10 resnet20 ivon     5 92.34  0.29 0.2613 0.0151 0.0331 0.0036 0.1167 0.0050
"""

_GRU_METRICS = ("accuracy", "nll", "ece", "brier", "auroc")
# Table 13; its column AUROC is that of misclassification detection
_GRU = """
cola    gru adamw     64.35 0.27 0.666 0.026 0.322 0.026 0.658 0.048 0.579 0.019
cola    gru sgd       67.65 0.92 0.631 0.011 0.060 0.006 0.448 0.006 0.548 0.027
cola    gru ivon@mean 68.54 0.00 0.623  0.03 0.030 0.005 0.432 0.003 0.509 0.041
cola    gru ivon      68.54 0.00 0.623  0.03 0.029 0.005 0.432 0.003 0.510 0.041
imdb    gru adamw     84.66 0.46 1.929 0.344 0.136 0.007 0.285 0.011 0.725 0.013
imdb    gru sgd       85.06 0.38 0.468 0.013 0.065 0.009 0.233 0.011 0.764 0.016
imdb    gru ivon@mean 89.55 0.20 0.428 0.023 0.061 0.003 0.251 0.023 0.811 0.025
imdb    gru ivon      87.73 0.96 0.568 0.119 0.065 0.010 0.199 0.018 0.751 0.031
ag_news gru adamw     90.65 0.32 0.985 0.046 0.408 0.031 0.171 0.006 0.826 0.006
ag_news gru sgd       89.57 0.40 0.386 0.009 0.055 0.004 0.167 0.005 0.845 0.004
ag_news gru ivon@mean 92.43 0.01 0.233 0.003 0.017 0.002 0.118 0.001 0.871 0.003
ag_news gru ivon      92.46 0.01 0.231 0.002 0.014 0.003 0.117 0.001 0.871 0.002
"""

# Figure 1 and Section 4.1: validation perplexity on OpenWebText after 100,000 steps
_GPT2 = {"125m": (18.1, 17.9), "355m": (14.5, 14.1), "773m": (13.0, 12.6)}


def images() -> Figures:
    """Tables 1, 9, 10 and 11, by (data, model, method).

    >>> images()["cifar10", "resnet20", "ivon"]["accuracy"]
    Published(mean=92.71, std=0.07)
    """
    return parsed(_IMAGES, 3, _IMAGE_METRICS)


def ood() -> Figures:
    """Table 3, by (data, model, method, data outside of the domain), in per cent.

    >>> ood()["cifar10", "resnet20", "ivon", "svhn"]["auroc"].mean
    89.2
    """
    return parsed(_OOD, 4, _OOD_METRICS)


def hess_init() -> Figures:
    """Table 8, by (data, model, method, h0).

    >>> hess_init()["cifar10", "resnet20", "ivon", "0.5"]["nll"].mean
    0.2173
    """
    return parsed(_HESS_INIT, 4, _HESS_INIT_METRICS)


def gru() -> Figures:
    """Table 13, by (data, model, method).

    >>> gru()["ag_news", "gru", "sgd"]["ece"]
    Published(mean=0.055, std=0.004)
    """
    return parsed(_GRU, 3, _GRU_METRICS)


def gpt2() -> Figures:
    """Figure 1, by (data, model, method).

    >>> gpt2()["openwebtext", "gpt2-773m", "ivon@mean"]["perplexity"].mean
    12.6
    """
    return {
        ("openwebtext", f"gpt2-{size}", method): {"perplexity": Published(value, None)}
        for size, values in _GPT2.items()
        for method, value in zip(("adamw", "ivon@mean"), values, strict=True)
    }


def parsed(text: str, names: int, metrics: tuple[str, ...]) -> Figures:
    """Rows of words: the names, then mean and standard deviation of each metric.

    >>> parsed("a b 1 0.5", 2, ("nll",))
    {('a', 'b'): {'nll': Published(mean=1.0, std=0.5)}}
    """
    figures = {}
    for line in text.strip().splitlines():
        words = line.split()
        values = [float(word) for word in words[names:]]
        pairs = [Published(mean, std) for mean, std in zip(values[::2], values[1::2], strict=True)]
        figures[tuple(words[:names])] = dict(zip(metrics, pairs, strict=True))
    return figures
