"""The dtype in which state is kept and noise is made."""

from __future__ import annotations

import torch
from torch import Tensor


def state_dtype(like: Tensor) -> torch.dtype:
    """float64 for float64 tensors, float32 for all others.

    In bfloat16 an average with beta2 = 1 - 1e-5 would never move.

    >>> state_dtype(torch.zeros(1, dtype=torch.bfloat16))
    torch.float32
    """
    return torch.float64 if like.dtype == torch.float64 else torch.float32
