"""Small operations on tensors that plans are made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.torch_version import TorchVersion

_INCREMENT_TAKES_LISTS = TorchVersion(torch.__version__) >= "2.5"


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether no number in `tensors` is NaN or infinite.

    >>> all_finite([torch.zeros(3)]), all_finite([torch.zeros(3), torch.tensor([1.0, torch.nan])])
    (True, False)
    """
    by_device: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            by_device.setdefault(tensor.device, []).append(tensor)
    for alike in by_device.values():
        # A sum is faster than a test of each number. Every NaN or infinity shows in it; it may also overflow by itself.
        sums = torch.stack([tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32)) for tensor in alike])
        if not bool(sums.isfinite().all()) and not all(bool(tensor.isfinite().all()) for tensor in alike):
            return False
    return True


def fold_in_mean(mean: Tensor, value: Tensor | None, count: int) -> None:
    """mean <- (count * mean + value) / (count + 1), in place; None stands for zero.

    >>> mean = torch.tensor([1.0])
    >>> fold_in_mean(mean, torch.tensor([4.0]), count=2)
    >>> mean
    tensor([2.])
    """
    if count == 0:
        mean.zero_()
    mean.mul_(count / (count + 1))
    if value is not None:
        mean.add_(value, alpha=1.0 / (count + 1))


def refresh_mean(param: Tensor, mean: Tensor) -> None:
    """Take over what was written into a float16 or bfloat16 parameter from outside; elsewhere keep the finer mean."""
    torch.where(mean.to(param.dtype) == param, mean, param.to(mean.dtype), out=mean)


def scaled(values: Tensor, factor: float) -> Tensor:
    """`values * factor`; the tensor itself where the factor is 1."""
    return values if factor == 1.0 else values * factor


def bounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Bound values, in place, to what a parameter of a smaller dtype can hold."""
    if values.dtype == dtype:
        return values
    bound = torch.finfo(dtype).max
    return values.clamp_(-bound, bound)


def changed(params: Sequence[Tensor]) -> None:
    """Tell autograd, which sees no writes through addresses: a graph that saved the old weights must not be used."""
    if _INCREMENT_TAKES_LISTS:
        increment_version(params)
    else:
        for param in params:
            increment_version(param)
