"""The control of merging by curvature: the same numbers in other places."""

from __future__ import annotations

import torch

from varlearn.types import Params


def shuffled(values: Params, seed: int) -> Params:
    """Each tensor's entries in another order: the control without any place for the curvature."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: value.flatten()[torch.randperm(value.numel(), generator=generator)].view(value.shape)
        for name, value in values.items()
    }
