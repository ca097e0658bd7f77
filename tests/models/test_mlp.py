"""The perceptron against its formula."""

import torch
from torch import nn

from varlearn.models import mlp


def test_equals_the_formula():
    model = mlp(4, 3, hidden=(5, 6)).double()
    x = torch.randn(2, 2, 2, dtype=torch.float64)
    y = x.flatten(1)
    first, second, last = (layer for layer in model if isinstance(layer, nn.Linear))
    y = (y @ first.weight.T + first.bias).clamp(min=0)
    y = (y @ second.weight.T + second.bias).clamp(min=0)
    torch.testing.assert_close(model(x), y @ last.weight.T + last.bias)


def test_no_hidden_layer_is_a_linear_model():
    model, x = mlp(4, 2, hidden=()), torch.randn(3, 4)
    zero = model(torch.zeros(3, 4))
    torch.testing.assert_close(model(-2 * x) - zero, -2 * (model(x) - zero))
