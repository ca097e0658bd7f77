"""What a network is trained to do: its loss, and its scores at one setting of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from varlearn.data.examples import Examples
from varlearn.methods import Task
from varlearn.prediction.language_model import IGNORE


class MeanVariance(nn.Module):
    """Reads two outputs as the mean of y and its standard deviation before a softplus: (B, 2) to two (B, 1).

    >>> mean, variance = MeanVariance()(torch.tensor([[3.0, 0.0]]))
    >>> mean.item(), round(variance.sqrt().item(), 4)  # log(1 + e^0)
    (3.0, 0.6931)
    """

    def forward(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Split and transform; 1e-6 keeps the variance away from zero."""
        return outputs[:, :1], softplus(outputs[:, 1:]).square() + 1e-6


def task_of(examples: Examples) -> Task:
    """The task that a data set sets: continue a text, name a class, or predict a number.

    >>> task_of(Examples(torch.zeros(2, 1), torch.zeros(2), (), "table"))
    'regression'
    """
    if examples.kind == "tokens":
        return "language"
    return "classification" if examples.classes else "regression"


def mean_loss(task: Task, outputs: Tensor | tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
    """The mean negative log-likelihood per example, of a text per token, in nats and in float32.

    Args:
        task: decides what the outputs are.
        outputs: logits (B, C) or (B, T, V), or the pair (mean, variance) of a regression.
        targets: (B,), or (B, T) of tokens.

    >>> round(mean_loss("classification", torch.zeros(1, 4), torch.tensor([2])).item(), 4)  # log 4
    1.3863
    """
    if isinstance(outputs, tuple):
        mean, variance = outputs[0].float(), outputs[1].float()
        errors = (targets.view_as(mean) - mean).square()
        terms = 0.5 * (errors / variance + variance.log() + math.log(2.0 * math.pi))
        return terms.reshape(len(terms), -1).sum(1).mean()
    if task == "language":
        return cross_entropy(outputs.flatten(0, 1).float(), targets.flatten())
    return cross_entropy(outputs.float(), targets)


def guessing_loss(std: Tensor) -> float:
    """The loss of a regression that predicts mean and variance of the targets for every input, in nats.

    Args:
        std: standard deviation of the targets, of each output.

    >>> round(guessing_loss(torch.tensor([1.0, 1.0])), 4)  # log(2 pi e)
    2.8379
    """
    terms = std.double().clamp_min(torch.finfo(torch.float32).tiny).log() + 0.5 * (1.0 + math.log(2.0 * math.pi))
    return terms.sum().item()


@torch.no_grad()
def score_at_weights(
    model: nn.Module,
    forward: Callable[[Any], Any],
    loss: Callable[[Any, Tensor], Tensor],
    batches: Iterable[tuple[Any, Tensor]],
    collect: Callable[[Tensor, Tensor], None] | None = None,
) -> Tensor:
    """Sums over batches, at the weights as they are: (NLL, correct or squared error, count), float64 on the CPU.

    Sums of several processes add up; `as_scores` makes scores of them.

    Args:
        model: is in evaluation mode meanwhile.
        forward: from the inputs of a batch to the outputs of the model.
        loss: from outputs and targets to the mean loss.
        batches: pairs (inputs, targets).
        collect: is given the predicted classes or values of each batch, and its targets.

    >>> batch = torch.tensor([[2.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 1])  # logits; the second is wrong
    >>> net = nn.Identity()
    >>> score_at_weights(net, net, cross_entropy, [batch])[1:]
    tensor([1., 2.], dtype=torch.float64)
    """
    sums = torch.zeros(3, dtype=torch.float64)
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        for inputs, targets in batches:
            outputs = forward(inputs)
            first = outputs[0] if isinstance(outputs, tuple) else outputs
            targets = targets.to(first.device)
            if targets.is_floating_point():
                errors = (first.double() - targets.view_as(first)).square()
                hits, count = errors.reshape(len(errors), -1).mean(1).sum(), len(targets)
            else:
                hits, count = (first.argmax(-1) == targets).sum(), int((targets != IGNORE).sum())
            if collect is not None:
                collect(first.reshape(targets.shape) if targets.is_floating_point() else first.argmax(-1), targets)
            nll = loss(outputs, targets).double() * count
            sums += torch.stack([nll, hits.double(), torch.tensor(float(count), device=nll.device).double()]).cpu()
    finally:
        for module, mode in modes.items():
            module.training = mode
    return sums


def as_scores(task: Task, sums: Tensor) -> dict[str, float]:
    """The scores that the sums of `score_at_weights` stand for; "nll" is the one that is always there.

    >>> as_scores("classification", torch.tensor([2.0, 3.0, 4.0]))
    {'nll': 0.5, 'accuracy': 0.75}
    """
    nll, hits, count = sums.tolist()
    nll, hits = nll / count, hits / count
    match task:
        case "classification":
            return {"nll": nll, "accuracy": hits}
        case "language":
            return {"nll": nll, "perplexity": math.exp(min(nll, 700.0)), "accuracy": hits}
        case "regression":
            return {"nll": nll, "rmse": math.sqrt(hits)}
