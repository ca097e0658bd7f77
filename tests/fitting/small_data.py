"""Small data and networks for the tests of `fit`."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def classes(rows: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two clouds."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % 2
    return torch.randn(rows, 3, generator=chance) + 2.0 * labels[:, None], labels


def numbers(rows: int = 300, seed: int = 0) -> tuple[Tensor, Tensor]:
    """y = 1000 + 50 x with noise of standard deviation 20."""
    chance = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 1, generator=chance)
    return inputs, 1000.0 + 50.0 * inputs[:, 0] + 20.0 * torch.randn(rows, generator=chance)


def loader(data: tuple[Tensor, Tensor], shuffle: bool = True, batch_size: int = 16) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(*data), batch_size=batch_size, shuffle=shuffle)


def network(inputs: int = 3, outputs: int = 2, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))
