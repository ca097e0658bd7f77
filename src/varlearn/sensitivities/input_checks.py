"""What `sensitivity` refuses, each with the value, the rule and the cure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from varlearn.posterior import DiagGaussian
from varlearn.posterior.binding import check_fits
from varlearn.prediction.loader_batches import is_shuffled


def check_posterior(model: nn.Module, posterior: Any) -> None:
    """Refuse a posterior without a diagonal variance, or of another network.

    >>> import torch
    >>> from varlearn.posterior import Point
    >>> check_posterior(nn.Linear(1, 1, bias=False), Point({"weight": torch.zeros(1, 1)}))
    Traceback (most recent call last):
    ...
    TypeError: a Point has no diagonal variance sigma^2; the posterior must be a DiagGaussian, use \
DiagGaussian.from_optimizer(model, optimizer)
    """
    if not isinstance(posterior, DiagGaussian):
        raise TypeError(
            f"a {type(posterior).__name__} has no diagonal variance sigma^2; the posterior must be a DiagGaussian, use "
            "DiagGaussian.from_optimizer(model, optimizer)"
        )
    check_fits(posterior, model)


def check_one_example_at_a_time(model: nn.Module) -> None:
    """Refuse a model whose output for an example is random, or depends on the rest of the batch.

    >>> check_one_example_at_a_time(nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.1)))
    Traceback (most recent call last):
    ...
    ValueError: '1' (Dropout) is in training mode, so an output depends on more than weights and one example; \
call model.eval()
    """
    for name, module in model.named_modules():
        what = f"{name!r} ({type(module).__name__})"
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise ValueError(
                f"{what} keeps no running statistics, so an output depends on the rest of the batch; it must depend on "
                "one example alone, use track_running_stats=True"
            )
        if module.training and _mixes_or_drops(module):
            raise ValueError(
                f"{what} is in training mode, so an output depends on more than weights and one example; "
                "call model.eval()"
            )


def _mixes_or_drops(module: nn.Module) -> bool:
    if isinstance(module, _DropoutNd):
        return module.p > 0
    if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        return module.dropout > 0
    return isinstance(module, _BatchNorm)


def check_order(loader: Iterable[Any]) -> None:
    """Refuse a loader whose rows could not be told apart afterwards.

    >>> from torch.utils.data import DataLoader
    >>> check_order(DataLoader([1, 2], shuffle=True))
    Traceback (most recent call last):
    ...
    ValueError: the loader shuffles, so it is unknown which example a row is; use shuffle=False, or batches \
(inputs, targets, ids)
    """
    if is_shuffled(loader):
        raise ValueError(
            "the loader shuffles, so it is unknown which example a row is; use shuffle=False, or batches "
            "(inputs, targets, ids)"
        )


def check_outputs(outputs: Tensor, ids: Tensor) -> None:
    """Refuse outputs that are NaN or infinite.

    >>> import torch
    >>> check_outputs(torch.tensor([[0.0], [float("nan")]]), torch.tensor([7, 8]))
    Traceback (most recent call last):
    ...
    ValueError: the outputs of example 8 are [nan] at the posterior mean, and must be finite; check its inputs, then \
whether training diverged
    """
    bad = ~outputs.isfinite().all(-1)
    if bad.any():
        first = int(bad.nonzero()[0])
        raise ValueError(
            f"the outputs of example {ids[first].item()} are {outputs[first].tolist()[:8]} at the posterior mean, and "
            "must be finite; check its inputs, then whether training diverged"
        )


def check_labels(labels: Tensor, classes: int, ids: Tensor) -> None:
    """Refuse labels that are not the number of a class.

    >>> import torch
    >>> check_labels(torch.tensor([0, 3]), classes=3, ids=torch.tensor([7, 8]))
    Traceback (most recent call last):
    ...
    ValueError: label 3 of example 8 must be one of 0 to 2, the model has 3 outputs; correct the label or leave the \
example out
    """
    bad = (labels < 0) | (labels >= classes)
    if bad.any():
        first = int(bad.nonzero()[0])
        raise ValueError(
            f"label {labels[first].item()} of example {ids[first].item()} must be one of 0 to {classes - 1}, the model "
            f"has {classes} outputs; correct the label or leave the example out"
        )
