"""BatchNorm's running statistics, for the weights that are used to predict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@torch.no_grad()
def recalibrate_batchnorm(
    model: nn.Module,
    batches: Iterable[Any],
    max_batches: int | None = None,
    *,
    forward: Callable[[Any], Any] | None = None,
) -> None:
    """Recompute running means and variances with the weights as they are now.

    During training the statistics are gathered under sampled weights, one sample per step, and fit neither the mean nor
    any other sample exactly. Call this once before predicting at the mean, or in `opt.sampled_params()` for a sample.
    All layers but BatchNorm stay in evaluation mode meanwhile, so dropout does not blur the statistics; every module's
    mode is put back afterwards. Nothing happens to a model without BatchNorm.

    Args:
        model: its BatchNorm layers with running statistics are reset and refilled.
        batches: inputs, or (inputs, targets) as a DataLoader gives them; targets are ignored. Batches count the same.
        max_batches: stop after so many; a few thousand examples are enough.
        forward: how the model is called with the inputs; None calls it with one argument.

    >>> model = nn.BatchNorm1d(1)
    >>> recalibrate_batchnorm(model, [torch.tensor([[1.0], [3.0]])])
    >>> model.running_mean
    tensor([2.])
    """
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    if not layers:
        return
    modes = {module: module.training for module in model.modules()}
    before = [(layer, layer.momentum, {k: v.clone() for k, v in layer.named_buffers()}) for layer in layers]
    seen = 0
    try:
        model.eval()
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a cumulative average over the batches
            layer.train()
        for seen, batch in enumerate(batches, start=1):
            (forward or model)(batch[0] if isinstance(batch, (tuple, list)) else batch)
            if seen == max_batches:
                break
        if seen == 0:
            raise ValueError("recalibrate_batchnorm got no batches; pass a DataLoader over training inputs")
    except BaseException:
        for layer, _, buffers in before:
            for name, value in layer.named_buffers():
                value.copy_(buffers[name])
        raise
    finally:
        for layer, momentum, _ in before:
            layer.momentum = momentum
        for module, mode in modes.items():
            module.training = mode


def uncalibrated_layers(model: nn.Module, steps: int) -> int:
    """How many BatchNorm layers have statistics that were gathered in training: from at least `steps` batches.

    `recalibrate_batchnorm` begins to count anew. A recalibration with as many batches as the run had steps is not
    noticed.

    Args:
        model: the network.
        steps: optimizer steps of the run.

    >>> model = nn.BatchNorm1d(1)
    >>> for _ in range(3):
    ...     _ = model(torch.tensor([[1.0], [3.0]]))
    >>> uncalibrated_layers(model, steps=3)
    1
    >>> recalibrate_batchnorm(model, [torch.tensor([[1.0], [3.0]])])
    >>> uncalibrated_layers(model, steps=3)
    0
    """
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    counts = [layer.num_batches_tracked for layer in layers if layer.num_batches_tracked is not None]
    return sum(int(count) >= steps > 0 for count in counts)
