"""e of one example: the gradient of its loss in the outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.prediction.language_model import IGNORE


def error_of_example(outputs: Tensor, target: Tensor, noise_variance: float = 1.0) -> Tensor:
    """softmax(f) - y for a label, (f - y) / s^2 for numbers, shape (C,).

    With twice as many outputs as numbers, the outputs are means and then log variances, and the loss is -log p.

    Args:
        outputs: f, shape (C,).
        target: a label, or float values.
        noise_variance: s^2.

    >>> error_of_example(torch.zeros(2), torch.tensor(0))
    tensor([-0.5000,  0.5000])
    >>> error_of_example(torch.tensor([3.0, 0.0]), torch.tensor([1.0]))  # (m - y) / v, (1 - (m - y)^2 / v) / 2
    tensor([ 2.0000, -1.5000])
    """
    if target.is_floating_point():
        values = target.reshape(-1).to(outputs.dtype)
        if 2 * values.numel() == outputs.numel():
            mean, log_variance = outputs.chunk(2)
            precision = torch.exp(-log_variance)
            return torch.cat([(mean - values) * precision, 0.5 * (1 - (mean - values).square() * precision)])
        if values.numel() != outputs.numel():
            raise ValueError(
                f"a float target of shape {tuple(target.shape)} must have as many numbers as the outputs, "
                f"{outputs.numel()}; for classes use integer labels"
            )
        return (outputs - values) / noise_variance
    if target.dim() > 0 or outputs.numel() < 2:
        raise ValueError(
            f"an integer target of shape {tuple(target.shape)} with {outputs.numel()} outputs must be one label for "
            ">= 2 classes; for regression use float targets"
        )
    return _softmax_error(outputs, target)


def error_of_tokens(outputs: Tensor, targets: Tensor) -> Tensor:
    """softmax(f) - y for each token, shape (T, V); 0 where the target is -100.

    >>> error_of_tokens(torch.zeros(2, 2), torch.tensor([0, -100]))
    tensor([[-0.5000,  0.5000],
            [ 0.0000,  0.0000]])
    """
    if targets.is_floating_point() or targets.shape != outputs.shape[:1]:
        raise ValueError(
            f"targets of shape {tuple(targets.shape)} and {targets.dtype} must be integer tokens, one for each of the "
            f"{len(outputs)} logits of a sequence"
        )
    return _softmax_error(outputs, targets) * (targets != IGNORE)[:, None]


def _softmax_error(outputs: Tensor, targets: Tensor) -> Tensor:
    classes = torch.arange(outputs.shape[-1], device=outputs.device)
    return outputs.softmax(-1) - (classes == targets[..., None]).to(outputs.dtype)
