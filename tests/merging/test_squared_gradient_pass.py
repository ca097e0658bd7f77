"""The SG pass: sums over examples, drawn labels, tokens, regression, part of a data set."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from varlearn.merging import squared_gradients

X = torch.randn(12, 3, dtype=torch.float64)
Y = torch.arange(12) % 4
MODEL = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double()


def by_hand(model: nn.Module, losses: Any, count: int) -> dict[str, Tensor]:
    params = dict(model.named_parameters())
    sums = {name: torch.zeros_like(p) for name, p in params.items()}
    for place in range(count):
        for name, one in zip(params, torch.autograd.grad(losses(place), list(params.values())), strict=True):
            sums[name] += one.square()
    return sums


@pytest.mark.parametrize("size", [1, 5, 12])
def test_true_labels(size: int) -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=size)
    wanted = by_hand(MODEL, lambda i: nn.functional.cross_entropy(MODEL(X[i : i + 1]), Y[i : i + 1]), 12)
    torch.testing.assert_close(squared_gradients(MODEL, loader, labels="true"), wanted, rtol=1e-9, atol=1e-15)


def test_drawn_labels_average_to_the_fisher() -> None:
    """E of the estimate is sum_i sum_y p(y) (grad log p(y))^2, exactly; the spread over seeds bounds the error."""
    loader = [(X, Y)]
    fisher = {name: torch.zeros_like(p) for name, p in MODEL.named_parameters()}
    p = MODEL(X).softmax(-1).detach()
    for label in range(4):
        for i in range(12):
            grads = torch.autograd.grad(-MODEL(X[i : i + 1]).log_softmax(-1)[0, label], list(MODEL.parameters()))
            for name, one in zip(fisher, grads, strict=True):
                fisher[name] += p[i, label] * one.square()
    draws = [squared_gradients(MODEL, loader, seed=seed) for seed in range(200)]
    for name, wanted in fisher.items():
        stacked = torch.stack([draw[name] for draw in draws])
        error = stacked.std(0) / 200**0.5
        assert ((stacked.mean(0) - wanted).abs() < 5 * error + 1e-12).all()
    again = squared_gradients(MODEL, [(X,)], seed=0)  # no labels are needed
    assert all(torch.equal(again[name], draws[0][name]) for name in fisher)
    assert not torch.equal(draws[0]["0.weight"], draws[1]["0.weight"])


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(6, 3), nn.Linear(3, 6)

    def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
        return {"logits": self.out(self.table(input_ids).cumsum(1))}


@pytest.mark.parametrize("shift", [False, True])
def test_tokens_add_up_and_ignored_ones_do_not_count(shift: bool) -> None:
    model, ids = Tokens().double(), torch.tensor([[1, 2, 3, 3], [5, 0, 1, 1]])
    labels = torch.tensor([[1, 2, 3, -100], [5, 0, 1, 4]])

    def loss(i: int) -> Tensor:
        logits, wanted = model(ids[i : i + 1])["logits"], labels[i : i + 1]
        logits, wanted = (logits[:, :-1], wanted[:, 1:]) if shift else (logits, wanted)
        return nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum")

    found = squared_gradients(model, [{"input_ids": ids, "labels": labels}], labels="true", shift=shift)
    torch.testing.assert_close(found, by_hand(model, loss, 2), rtol=1e-9, atol=1e-15)
    drawn = squared_gradients(model, [{"input_ids": ids, "labels": torch.full_like(labels, -100)}], shift=shift)
    assert not any(one.any() for one in drawn.values())


def test_regression() -> None:
    model, targets = nn.Linear(3, 1).double(), torch.randn(12, 1).double()
    found = squared_gradients(model, [(X, targets)], labels="true")
    wanted = by_hand(model, lambda i: 0.5 * (model(X[i : i + 1]) - targets[i]).square().sum(), 12)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-15)
    drawn = torch.stack([squared_gradients(model, [(X, targets)], seed=seed)["weight"] for seed in range(300)])
    exact = X.square().sum(0, keepdim=True)  # the residual has variance 1
    assert ((drawn.mean(0) - exact).abs() < 5 * drawn.std(0) / 300**0.5).all()


def test_a_part_is_scaled_up_to_the_whole() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=5)
    part = squared_gradients(MODEL, loader, labels="true", examples=6)
    wanted = squared_gradients(MODEL, [(X[:6], Y[:6])], labels="true")
    torch.testing.assert_close(part, {name: 2 * one for name, one in wanted.items()}, rtol=1e-12, atol=0)
    whole = squared_gradients(MODEL, loader, labels="true", examples=12)
    torch.testing.assert_close(whole, squared_gradients(MODEL, loader, labels="true"), rtol=0, atol=0)


BAD: list[tuple[Any, str]] = [
    (lambda: squared_gradients(MODEL, [(X, Y)], labels="model"), "labels='model' must be one of sampled, true"),
    (lambda: squared_gradients(MODEL, [(X,)], labels="true"), "gives no targets, which labels='true' needs"),
    (lambda: squared_gradients(MODEL, []), "the loader gave no batch"),
    (lambda: squared_gradients(MODEL, [(X, Y)], examples=0), "examples=0 must be >= 1"),
    (lambda: squared_gradients(MODEL, [(X, Y)], examples=5), "examples= needs the size of the data set"),
    (
        lambda: squared_gradients(nn.Sequential(nn.Linear(3, 4), nn.Dropout()), [(X, Y)]),
        r"'1' \(Dropout\) is in training mode",
    ),
    (lambda: squared_gradients(nn.Tanh(), [(X, Y)]), "no trainable parameter; call requires_grad_"),
    (lambda: squared_gradients(MODEL, [(X / 0, Y)], labels="true"), "squared gradients of '0.weight' are NaN"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_wrong_use_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
