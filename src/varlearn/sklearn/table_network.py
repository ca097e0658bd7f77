"""The default network for the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class Standardized(nn.Module):
    """Columns with mean 0 and standard deviation 1 on the training rows; a constant column becomes 0.

    >>> rows = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    >>> Standardized(rows)(rows)
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    """

    mean: Tensor
    std: Tensor
    one: Tensor

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        wide = rows.double()
        std = wide.std(0, correction=0)
        self.register_buffer("mean", wide.mean(0))
        self.register_buffer("std", torch.where(std > 0, std, torch.ones_like(std)))
        self.register_buffer("one", torch.ones(()))  # has the dtype of the network, also after double()

    def forward(self, rows: Tensor) -> Tensor:
        """Standardize in float64, so that large offsets lose no digits."""
        return ((rows.double() - self.mean) / self.std).to(self.one.dtype)


def table_network(rows: Tensor, outputs: int, hidden: Sequence[int], seed: int) -> nn.Sequential:
    """Standardization, hidden layers with ReLU, and a linear layer.

    Args:
        rows: of training, shape (N, columns).
        outputs: of the last layer.
        hidden: widths of the hidden layers.
        seed: of the initial weights; the global random state is not touched.

    >>> net = table_network(torch.zeros(4, 3), outputs=2, hidden=(5,), seed=0)
    >>> sum(p.numel() for p in net.parameters())  # 3 * 5 + 5 + 5 * 2 + 2
    32
    """
    widths = [rows.shape[1], *hidden]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        layers: list[nn.Module] = [Standardized(rows)]
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))
