"""Squared gradients of single examples equal a backward pass for each of them, for any layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from varlearn.merging import example_squares as module
from varlearn.merging.example_squares import example_squares

X, TOKENS = torch.randn(6, 4, dtype=torch.float64), torch.tensor([[1, 2, 2], [0, 3, 4], [4, 4, 4], [2, 0, 1]])


def one_by_one(model: nn.Module, loss: Any, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    params = dict(model.named_parameters())
    sums = {name: torch.zeros_like(param) for name, param in params.items()}
    for place in range(len(targets)):
        total = loss(model(inputs[place : place + 1]), targets[place : place + 1])
        found = torch.autograd.grad(total, list(params.values()), allow_unused=True, materialize_grads=True)
        for name, one in zip(params, found, strict=True):
            sums[name] += one.square()
    return sums


class Tied(nn.Module):
    """The output layer is the embedding, used outside its module."""

    def __init__(self, through_layer: bool) -> None:
        super().__init__()
        self.table, self.middle = nn.Embedding(5, 3), nn.Linear(3, 3)
        self.out = nn.Linear(3, 5, bias=False) if through_layer else None
        if self.out is not None:
            self.out.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.middle(self.table(ids)).tanh()
        return (x @ self.table.weight.T if self.out is None else self.out(x)).mean(1)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x).tanh())


class TimeFirst(nn.Module):
    """Transposes inside; with as many steps as examples, shapes do not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 6)
        self.encoder = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0)
        self.head = nn.Linear(6, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.encoder(self.table(ids).transpose(0, 1)).mean(0))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.gru, self.head = nn.Embedding(5, 3), nn.GRU(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.gru(self.table(ids))[0][:, -1])


class OwnWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.randn(4)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x * self.scale)


class Positions(nn.Module):
    """Positions are embedded once for all examples, as in BERT and GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.place, self.head = nn.Embedding(5, 4), nn.Embedding(3, 4), nn.Linear(12, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head((self.table(ids) + self.place(torch.arange(3).unsqueeze(0))).tanh().flatten(1))


class Cube(torch.autograd.Function):
    """In the old style, without rules for functional transforms."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * grads[0]


class CustomFunction(OwnWeight):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(Cube.apply(x * self.scale))


def convolutional() -> nn.Module:
    layers = [nn.Conv1d(1, 3, 2), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(), nn.LayerNorm(9), nn.Linear(9, 3)]
    return nn.Sequential(nn.Unflatten(1, (1, 4)), *layers).eval()


TOKEN_MODELS: dict[str, Callable[[], nn.Module]] = {
    "embedding": lambda: nn.Sequential(
        nn.Embedding(5, 4, padding_idx=0), nn.Linear(4, 3), nn.Flatten(), nn.Linear(9, 3)
    ),
    "positions": Positions,
    "tied by layer": lambda: Tied(True),
    "tied by use": lambda: Tied(False),
    "time first": TimeFirst,
    "recurrent": Recurrent,
}
ROW_MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)),
    "in place": lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)),
    "convolutional": convolutional,
    "twice": Twice,
    "own weight": OwnWeight,
    "custom function": CustomFunction,
}
LAYER_BY_LAYER = {"embedding", "positions", "tied by layer", "mlp", "convolutional", "twice", "own weight"}


@pytest.mark.parametrize("name", [*TOKEN_MODELS, *ROW_MODELS])
def test_it_is_a_backward_pass_for_each_example(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = (TOKEN_MODELS | ROW_MODELS)[name]().double()
    inputs = TOKENS if name in TOKEN_MODELS else X
    if name == "time first":
        inputs = inputs[:3]
    targets = torch.arange(len(inputs)) % 3
    loss = lambda out, labels: nn.functional.cross_entropy(out, labels, reduction="sum")  # noqa: E731
    whole: list[str] = []
    original = module._whole_model
    monkeypatch.setattr(module, "_whole_model", lambda *given: whole.append(name) or original(*given))
    found = example_squares(model, loss, (inputs,), {}, targets)
    wanted = one_by_one(model, loss, inputs, targets)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=1e-9, atol=1e-14)
        assert value.any()
    assert bool(whole) == (name not in LAYER_BY_LAYER)
    assert all(param.grad is None for param in model.parameters())


def test_named_arguments_frozen_weights_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)).double()
    model[0].bias.requires_grad_(False)
    targets = torch.arange(6) % 3
    loss = lambda out, labels: nn.functional.cross_entropy(out, labels, reduction="sum")  # noqa: E731
    at_once = example_squares(model, loss, (), {"input": X}, targets)
    assert set(at_once) == {name for name, _ in model.named_parameters()} - {"0.bias"}
    monkeypatch.setattr("varlearn.merging.layer_gradients.MAX_BYTES", 1)
    one_at_a_time = example_squares(model, loss, (), {"input": X}, targets)
    for name, value in at_once.items():
        torch.testing.assert_close(one_at_a_time[name], value, rtol=1e-12, atol=0)
