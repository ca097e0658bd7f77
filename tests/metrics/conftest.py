"""Predictions to score, and the oracle that does not import everywhere."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

Predictions = Callable[..., tuple[Tensor, Tensor]]


@pytest.fixture(scope="session")
def predictions() -> Predictions:
    """A function (n, classes, seed, tied) -> float64 log-probabilities (n, classes) and targets (n,)."""

    def make(n: int, classes: int, seed: int, tied: bool = False) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        logits = 3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
        if tied:
            logits = logits.round()
        targets = torch.where(
            torch.rand(n, generator=generator) < 0.6,
            logits.argmax(-1),
            torch.randint(classes, (n,), generator=generator),
        )
        return logits.log_softmax(-1), targets

    return make


@pytest.fixture(scope="session")
def torchmetrics_classification() -> ModuleType:
    """torchmetrics' functional classification metrics; skipped where a broken torchvision keeps it from importing."""
    try:
        from torchmetrics.functional import classification
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchmetrics does not import: {error}")
    return classification
