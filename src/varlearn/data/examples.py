"""Examples in memory, with what is needed to feed them to a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from varlearn.data.stored_images import StoredImages

Kind = Literal["image", "text", "tokens", "table"]
"""image: pixels and a class; text: tokens and a class; tokens: one long text to be continued; table: regression."""


@dataclass(frozen=True, eq=False)
class Examples:
    """One split of a data set.

    Attributes:
        inputs: images uint8 (N, C, H, W), or `StoredImages` that are decoded when asked for; texts int64 (N, T), padded
            with 0 at the end; tables float32 (N, D); tokens (L,), one stream for language modelling.
        targets: classes int64 (N,), or values float32 (N,); empty for tokens.
        classes: the classes' names, by number; empty for tokens and tables.
        kind: see `Kind`.
        mean: per channel (of pixels in [0, 1]) or column, subtracted by `Batches`; empty for no normalisation.
        std: per channel or column, divided by.
        vocab: number of different tokens; 0 where there are none.
        mirror: whether a mirrored image is still an example of its class, so that augmentation may flip it.
        target_mean: for tables, `targets * target_std + target_mean` is in the units of the source.
        target_std: see `target_mean`.

    >>> examples = Examples(torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0]), ("a", "b"), "image")
    >>> len(examples), examples.first(2).targets
    (3, tensor([0, 1]))
    """

    inputs: Tensor | StoredImages
    targets: Tensor
    classes: tuple[str, ...]
    kind: Kind
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    vocab: int = 0
    mirror: bool = False
    target_mean: float = 0.0
    target_std: float = 1.0

    def __post_init__(self) -> None:
        if len(self.inputs) == 0:
            raise ValueError("0 examples cannot be learned from or scored; give at least one")
        if self.kind != "tokens" and len(self.inputs) != len(self.targets):
            raise ValueError(f"{len(self.inputs)} inputs must have as many targets, not {len(self.targets)}")
        if any(value <= 0 for value in self.std) or len(self.mean) != len(self.std):
            raise ValueError(f"std={self.std} must hold one number > 0 for each of mean={self.mean}")

    def __len__(self) -> int:
        """Number of examples; of tokens, for language modelling."""
        return len(self.inputs)

    def first(self, n: int) -> Examples:
        """The first n examples (tokens, for language modelling).

        >>> Examples(torch.zeros(3, 1), torch.zeros(3), (), "table").first(4)
        Traceback (most recent call last):
        ...
        ValueError: n=4 must be between 1 and the 3 examples there are
        """
        if not 1 <= n <= len(self):
            raise ValueError(f"n={n} must be between 1 and the {len(self)} examples there are")
        return replace(self, inputs=self.inputs[:n], targets=self.targets[:n])

    def select(self, index: Tensor) -> Examples:
        """The examples of the given numbers, in their order.

        >>> Examples(torch.zeros(3, 1), torch.tensor([0.0, 1.0, 2.0]), (), "table").select(torch.tensor([2, 0])).targets
        tensor([2., 0.])
        """
        return replace(self, inputs=self.inputs[index], targets=self.targets[index])


def pixel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels scaled to [0, 1].

    A channel that never varies gets the standard deviation 1, so that dividing by it is harmless.

    >>> pixel_statistics(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    ((0.5,), (0.5,))
    """
    means, stds = [], []
    for channel in images.unbind(1):
        counts = torch.bincount(channel.reshape(-1), minlength=256).double()  # exact, and no float copy of the pixels
        levels = torch.arange(256, dtype=torch.float64) / 255
        mean = (counts * levels).sum() / counts.sum()
        std = (counts * (levels - mean) ** 2).sum().div(counts.sum()).sqrt()
        means.append(mean.item())
        stds.append(std.item() or 1.0)
    return tuple(means), tuple(stds)
