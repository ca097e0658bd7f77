"""Networks learn standardized targets; predictions are in the units of the targets."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from varlearn.prediction.loader_batches import outputs_of

_MOST = 10_000  # examples that mean and scale are computed from
_AVERAGED = 0.95  # share of the noise variance that a batch keeps


@dataclass(frozen=True)
class TargetUnits:
    """y = shift + scale * f(x): what the outputs of the network mean.

    Attributes:
        shift: mean of the targets, of each output.
        scale: their standard deviation.
        noise_factor: factor of the variance that the network predicts, where it does.
    """

    shift: Tensor
    scale: Tensor
    noise_factor: float = 1.0

    @contextlib.contextmanager
    def on(self, model: nn.Module) -> Iterator[None]:
        """Inside the block, the model returns values in the units of the targets.

        >>> net = nn.Identity()
        >>> with TargetUnits(torch.tensor(10.0), torch.tensor(2.0)).on(net):
        ...     net(torch.ones(1))
        tensor([12.])
        """
        handle = model.register_forward_hook(lambda module, inputs, result: self._converted(result))
        try:
            yield
        finally:
            handle.remove()

    def _converted(self, result: Any) -> Any:
        outputs = outputs_of(result)
        if isinstance(outputs, Tensor):
            value = outputs * _like(self.scale, outputs) + _like(self.shift, outputs)
            return value if outputs is result else {"logits": value}
        mean, variance = outputs
        factor = _like(self.scale, variance).square() * self.noise_factor
        return mean * _like(self.scale, mean) + _like(self.shift, mean), variance * factor


def _like(values: Tensor, outputs: Tensor) -> Tensor:
    return values.to(outputs).reshape(outputs.shape[1:] if values.numel() > 1 else ())


def measure_units(pairs: Iterable[tuple[Any, Tensor]]) -> TargetUnits:
    """Mean and standard deviation of the targets of the first 10,000 examples.

    >>> measure_units([(None, torch.tensor([1.0, 3.0]))]).shift
    tensor(2.)
    """
    kept: list[Tensor] = []
    seen = 0
    for _, targets in pairs:
        kept.append(targets.detach().double().cpu())
        seen += len(targets)
        if seen >= _MOST:
            break
    targets = torch.cat(kept)
    scale = targets.std(0, correction=0)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))  # constant targets stay constant
    return TargetUnits(targets.mean(0).float(), scale.float())


class GaussianLoss(nn.Module):
    """The mean negative log-density of a regression, with a noise variance that follows the squared errors.

    The variance is a running average of the mean squared error of batches, one number for each output. Without it the
    loss would have no scale, and a posterior needs one: the squared error of a quantity in metres is not that of the
    same quantity in millimetres. Networks that return (mean, variance) have their own.

    >>> loss = GaussianLoss()
    >>> value = loss(torch.zeros(2, 1), torch.tensor([2.0, -2.0]))  # the variance is 4
    >>> round(value.item(), 4), loss.variance  # (1 + log 4 + log 2 pi) / 2
    (2.1121, tensor(4.))
    """

    variance: Tensor

    def __init__(self, outputs: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("variance", torch.full(outputs, math.nan))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over examples of the sum over outputs. With gradients, the variance is updated first."""
        errors = (targets.to(outputs.device, torch.float32).view_as(outputs) - outputs.float()).square()
        if torch.is_grad_enabled() or bool(self.variance.isnan().any()):
            now = errors.detach().reshape(len(errors), -1).mean(0).reshape(self.variance.shape)
            now = now.clamp_min(torch.finfo(torch.float32).tiny)
            old = self.variance.to(now)
            self.variance = torch.where(old.isnan(), now, _AVERAGED * old + (1.0 - _AVERAGED) * now)
        variance = self.variance.to(errors)
        terms = 0.5 * (errors / variance + variance.log() + math.log(2.0 * math.pi))
        return terms.reshape(len(terms), -1).sum(1).mean()
