"""The exact diagonal of the Hessian of a mean loss, for networks that are piecewise linear in each single weight."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]


def hessian_diagonal(model: nn.Sequential, loss: Loss, inputs: Tensor, targets: Tensor) -> Tensor:
    """The diagonal of the Hessian of `loss(model(inputs), targets)`, for all parameters in one vector (P,).

    A perceptron with ReLUs is piecewise linear in each single weight, so the second derivative of its outputs by that
    weight is 0 almost everywhere. What is left is sum_k e_k (J u_k)^2, where e_k and u_k are the eigenvalues and
    eigenvectors of the loss's Hessian in the outputs of one example, and J is the derivative of the outputs.

    Args:
        model: linear layers, ReLUs and a Flatten, nothing else.
        loss: a mean over examples, (outputs, targets) -> scalar.
        inputs: (N, ...).
        targets: (N,).

    >>> model = nn.Sequential(nn.Linear(1, 1))
    >>> halves = lambda outputs, targets: 0.5 * (outputs[:, 0] - targets).square().mean()
    >>> hessian_diagonal(model, halves, torch.tensor([[1.0], [3.0]]), torch.zeros(2))  # mean of x^2, and 1
    tensor([5., 1.])
    """
    unknown = [type(layer).__name__ for layer in model if not isinstance(layer, (nn.Linear, nn.ReLU, nn.Flatten))]
    if unknown:
        raise ValueError(f"layers {unknown} must be Linear, ReLU or Flatten; others are not linear in each weight")
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    before: list[Tensor] = []  # inputs of each linear layer, (N, in)
    after: list[Tensor] = []  # its outputs, (N, out)
    values = inputs
    for layer in model:
        outputs = layer(values)
        if isinstance(layer, nn.Linear):
            before.append(values.detach())
            after.append(outputs)
        values = outputs
    eigenvalues, eigenvectors = torch.linalg.eigh(_output_hessians(loss, values.detach(), targets))  # (N, C), (N, C, C)
    sums = [(torch.zeros_like(layer.weight), torch.zeros_like(layer.bias)) for layer in layers]
    for k in range(values.shape[1]):
        slopes = torch.autograd.grad(values, after, grad_outputs=eigenvectors[:, :, k], retain_graph=True)
        for (weight, bias), x, slope in zip(sums, before, slopes, strict=True):
            squares = slope.square() * eigenvalues[:, k : k + 1]  # (N, out)
            weight += squares.T @ x.square() / len(inputs)
            bias += squares.mean(0)
    return torch.cat([part.detach().flatten() for pair in sums for part in pair])


def _output_hessians(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The Hessian of each example's loss in its outputs, (N, C, C)."""

    def of_one(output: Tensor, target: Tensor) -> Tensor:
        return loss(output.unsqueeze(0), target.unsqueeze(0))

    return torch.func.vmap(torch.func.hessian(of_one))(outputs, targets)
