"""Bags of embeddings in plain operations against PyTorch's kernel."""

import pytest
import torch
from torch import nn

from varlearn.sensitivities.embedding_bags import PlainBags

WORDS = torch.tensor([[1, 2, 3, 3], [5, 1, 0, 0], [0, 0, 0, 0]])


@pytest.mark.parametrize("padding", [None, 0, -7])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_are_those_of_the_kernel(mode: str, padding: int | None) -> None:
    layer = nn.EmbeddingBag(7, 3, mode=mode, padding_idx=padding).double()
    nn.init.normal_(layer.weight)
    with PlainBags():
        found = layer(WORDS)
    torch.testing.assert_close(found, layer(WORDS), rtol=1e-12, atol=1e-12)


def test_words_may_have_factors() -> None:
    layer, factors = nn.EmbeddingBag(7, 3, mode="sum", padding_idx=0).double(), torch.randn(3, 4).double()
    with PlainBags():
        found = layer(WORDS, per_sample_weights=factors)
    torch.testing.assert_close(found, layer(WORDS, per_sample_weights=factors), rtol=1e-12, atol=1e-12)


def test_bags_by_offsets_go_to_the_kernel() -> None:
    layer = nn.EmbeddingBag(7, 3)
    with PlainBags():
        found = layer(WORDS.flatten(), torch.tensor([0, 5]))
    assert torch.equal(found, layer(WORDS.flatten(), torch.tensor([0, 5])))
