"""IVON in a loop of Hugging Face Accelerate: `optimizer.train()` before the forward pass is the only new line.

`accelerator.prepare` keeps the state, `accelerator.accumulate` shares one sample among its micro-batches, and
`save_state` / `load_state` resume bit for bit; this module adds the posterior's file to what `save_state` writes.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from varlearn.integrations.wrapped import posterior_of, save_posterior


def save_posterior_with_state(accelerator: Any, model: nn.Module, optimizer: Any) -> Any:
    """From now on `accelerator.save_state(folder)` also writes `folder/posterior.safetensors`.

    Args:
        accelerator: an `accelerate.Accelerator`.
        model: prepared or not.
        optimizer: the prepared optimizer.

    Returns:
        The handle of the hook; `handle.remove()` undoes it.
    """

    def hook(models: list[nn.Module], weights: list[Any], folder: str) -> None:
        if accelerator.is_main_process:
            save_posterior(posterior_of(model, optimizer), model, folder)

    return accelerator.register_save_state_pre_hook(hook)
