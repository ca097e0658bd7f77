"""How far the inputs of one data set lie from those of another."""

from __future__ import annotations

import torch
from torch import Tensor

_CONSTANT = 1e-6  # of the largest standard deviation: below it a feature counts as constant


def input_shift(train: Tensor, test: Tensor) -> float:
    """Distance of test inputs from training inputs, in standard deviations of the training inputs.

    The larger of two numbers over the features that vary in the training inputs. With means m, m' and standard
    deviations s, s' of a feature in training and test inputs:

    - the root mean square of (m' - m) / s, less what a sample of this size has by chance;
    - the median of |s' / s - 1|.

    Inputs that were scaled or normalized in another way have large values. Equal distributions have about 0.

    Args:
        train: training inputs, shape (N, ...), at least two.
        test: test inputs, shape (M, ...), at least two.

    >>> inputs = torch.arange(100.0).view(50, 2)
    >>> input_shift(inputs, inputs), round(input_shift(inputs, 3.0 * inputs), 2)
    (0.0, 3.39)
    """
    if train.shape[1:] != test.shape[1:] or min(len(train), len(test)) < 2:
        raise ValueError(
            f"inputs of shapes {tuple(train.shape)} and {tuple(test.shape)} cannot be compared; give at least two of "
            "each, with the same features"
        )
    first, second = (inputs.reshape(len(inputs), -1).double() for inputs in (train, test))
    std = first.std(0)
    varies = std > _CONSTANT * std.max()
    if not bool(varies.any()):
        return 0.0
    std = std[varies]
    offsets = (second.mean(0) - first.mean(0))[varies] / std
    by_chance = 1.0 / len(train) + 1.0 / len(test)
    distance = (offsets.square().mean() - by_chance).clamp_min(0.0).sqrt()
    scale = (second.std(0)[varies] / std - 1.0).abs().median()
    return float(torch.maximum(distance, scale))
