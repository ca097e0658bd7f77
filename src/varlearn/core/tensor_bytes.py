"""The bytes of a tensor, as safetensors files have them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def raw_bytes(tensor: Tensor) -> memoryview:
    """The entries in the order of a contiguous tensor, of any dtype; no copy where it is contiguous and on the CPU.

    >>> bytes(raw_bytes(torch.tensor([1.0], dtype=torch.bfloat16))).hex()
    '803f'
    """
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    array: Any = flat.view(torch.uint8).numpy()
    return memoryview(array) if flat.numel() else memoryview(b"")
