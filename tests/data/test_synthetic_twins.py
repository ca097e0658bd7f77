from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from varlearn.data import Batches, Examples, load, synthetic


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cifar10", {}),
        ("mnist", {}),
        ("digits", {}),
        ("cifar100-pack", {}),
        ("svhn-pack", {}),
        ("ag_news-pack", {}),
        ("rte", {"vocab": 6000}),
        ("tinyshakespeare", {}),
        ("uci-energy", {}),
    ],
)
def test_twins_have_the_form_of_the_real_ones(pack: Path, name: str, options: dict) -> None:
    real, twin = load(name, "test", pack, **options), synthetic(name, 40)
    assert real.inputs[:].dtype == twin.inputs[:].dtype
    assert real.targets.dtype == twin.targets.dtype
    assert (real.kind, real.classes, real.mirror) == (twin.kind, twin.classes, twin.mirror)
    assert len(real.mean) == len(twin.mean)
    if real.kind in ("image", "table"):
        assert real.inputs.shape[1:] == twin.inputs.shape[1:]
    else:
        assert (real.vocab > 0) == (twin.vocab > 0)
        assert int(twin.inputs[:].max()) < twin.vocab


def test_the_seed_decides_the_examples_and_not_the_task() -> None:
    one, same, other = synthetic("cifar10", 200, 0), synthetic("cifar10", 200, 0), synthetic("cifar10", 200, 1)
    assert torch.equal(one.inputs[:], same.inputs[:])
    assert not torch.equal(one.inputs[:], other.inputs[:])
    patterns = [torch.stack([e.inputs[e.targets == k].float().mean(0) for k in range(10)]) for e in (one, other)]
    distances = torch.cdist(patterns[0].flatten(1), patterns[1].flatten(1))
    assert distances.argmin(1).tolist() == list(range(10))


def accuracy(train: Examples, test: Examples, model: nn.Module) -> float:
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    batches = Batches(train, 50, seed=0, shuffle=True)
    for epoch in range(5):
        for x, y in batches.epoch(epoch):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    with torch.no_grad():
        right = torch.cat([model(x).argmax(1) == y for x, y in Batches(test, 100)])
    return right.double().mean().item()


def test_images_can_be_learned() -> None:
    train, test = synthetic("mnist", 500, 0), synthetic("mnist", 200, 1)
    assert accuracy(train, test, nn.Sequential(nn.Flatten(), nn.Linear(784, 10))) > 0.9


def test_texts_can_be_learned() -> None:
    train, test = synthetic("ag_news", 1000, 0), synthetic("ag_news", 200, 1)
    assert accuracy(train, test, nn.Sequential(nn.EmbeddingBag(train.vocab, 16, padding_idx=0), nn.Linear(16, 4))) > 0.8


def test_corpora_can_be_learned() -> None:
    tokens = synthetic("brown", 20_000).inputs[:].long()
    pairs = torch.zeros(256, 256).index_put((tokens[:-1], tokens[1:]), torch.ones(len(tokens) - 1), accumulate=True)
    p, q = pairs / pairs.sum(), pairs.sum(1) / pairs.sum()
    entropy = -(p[p > 0] * p[p > 0].log()).sum() + (q[q > 0] * q[q > 0].log()).sum()
    assert 0.5 < entropy.item() <= torch.tensor(3.0).log().item() + 1e-6


def test_tables_can_be_learned() -> None:
    table = synthetic("uci-energy", 500)
    inputs = torch.cat([table.inputs[:], torch.ones(500, 1)], 1)
    residual = table.targets - inputs @ torch.linalg.lstsq(inputs, table.targets).solution
    assert residual.var() < 0.8 * table.targets.var()


def test_refusals() -> None:
    with pytest.raises(ValueError, match="n=0 must be >= 1"):
        synthetic("cifar10", 0)
    with pytest.raises(ValueError, match="'none' has no twin; known are"):
        synthetic("none", 3)
