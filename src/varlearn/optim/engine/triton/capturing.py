"""Whether a CUDA graph is captured now. Nothing is computed then: what is launched is computed at each replay."""

from __future__ import annotations

import torch


def is_capturing(device: torch.device) -> bool:
    """Whether launches on a device are recorded in a CUDA graph.

    >>> is_capturing(torch.device("cpu"))
    False
    """
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def refuse(device: torch.device, why: str) -> None:
    """Raise inside a CUDA graph."""
    if is_capturing(device):
        raise RuntimeError(
            f"the optimizer's step cannot be captured in a CUDA graph: {why}. Take three steps of the same kind before "
            "the capture, or capture forward and backward alone, with the optimizer outside of the graph"
        )
