"""The memory format of the image models."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def channels_last(model: Model) -> Model:
    """Put the four-dimensional weights of a model into the channels_last format, in place, and return the model.

    The convolutions then give images in that format, whatever the format of their input, which CPUs and tensor cores
    prefer. Values and shapes stay.

    Args:
        model: any module.

    A weight (2, 3, 1, 5) keeps the 3 numbers of a pixel together:

    >>> channels_last(nn.Conv2d(3, 2, (1, 5))).weight.stride()
    (15, 1, 15, 3)
    """
    return model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
