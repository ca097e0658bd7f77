"""`sensitivity`: one pass over the data, and what each example's absence would change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from varlearn.posterior import DiagGaussian
from varlearn.prediction.loader_batches import device_of, move, split_batch
from varlearn.sensitivities.example_deviation import ExampleDeviation
from varlearn.sensitivities.input_checks import (
    check_labels,
    check_one_example_at_a_time,
    check_order,
    check_outputs,
    check_posterior,
)
from varlearn.sensitivities.loo_estimates import Sensitivity, softmax_slope

Score = Literal["probability", "paper"]


def sensitivity(
    model: nn.Module,
    posterior: DiagGaussian,
    loader: Iterable[Any],
    *,
    ids: Sequence[int] | Tensor | None = None,
    diagonal: bool = False,
    score: Score = "probability",
    noise_variance: float = 1.0,
    chunk: int | None = None,
) -> Sensitivity:
    """Estimate how the outputs for each training example would change if the example were left out.

    With f the outputs for an example at the posterior mean, J its Jacobian (outputs by weights), e the gradient of its
    loss in f, and sigma^2 the posterior variance, the memory-perturbation equation says

        V = J diag(sigma^2) J^T,    f without the example = f + V e,

    to first order. J^T e is one backward pass and V e = J (sigma^2 * J^T e) one forward-mode product, so the cost does
    not grow with the number of classes. Integer targets mean classification, e = softmax(f) - y; float targets mean
    regression, e = (f - y) / s^2.

    The equation holds for a posterior with ess = n, the number of training examples, at temperature 1. The variance is
    used as it is: for another ess pass `posterior.tempered(ess / n)`, after `calibrate` `posterior.at_temperature(1)`.

    Args:
        model: returns (B, C), or an object with `logits`; dropout and BatchNorm must be in eval mode. Layers without a
            vmap rule, such as `nn.GRU`, are computed one example at a time. The model is not changed.
        posterior: a `DiagGaussian`: IVON's, VAdamW's, or those made up for AdamW and SGD.
        loader: the training data without augmentation: batches (inputs, targets), mappings with "labels", or
            (inputs, targets, ids).
        ids: of the examples in the order of the loader; None numbers them, unless the batches have ids.
        diagonal: v * e with v the diagonal of V, as in the paper's CIFAR-10 appendix; C backward passes per example.
        score: "probability" sums the absolute changes of the probabilities, |Lambda V e| with Lambda = diag(p) - p p^T;
            "paper" those of the logits, |V e|. In regression both are |V e|.
        noise_variance: s^2 of a regression's loss (f - y)^2 / (2 s^2); 0.5 if it was trained with `nn.MSELoss`.
        chunk: examples at a time; None keeps their gradients below 256 MiB. It does not change the results.

    Returns:
        `Sensitivity`, in the order of the loader, with ids.

    A weight of variance 0.1 that sees x = 2: V = 0.1 * 2^2, e = 3 - 1.

    >>> net = nn.Linear(1, 1, bias=False)
    >>> q = DiagGaussian({"weight": torch.tensor([[1.5]])}, {"weight": torch.tensor([[1.0]])}, ess=10.0)
    >>> found = sensitivity(net, q, [(torch.tensor([[2.0]]), torch.tensor([[1.0]]))])
    >>> found.deviation, found.loo_outputs
    (tensor([[0.8000]]), tensor([[3.8000]]))
    """
    if score not in ("probability", "paper"):
        raise ValueError(f"score={score!r} must be 'probability' or 'paper'; leave it out for the first")
    if not 0 < noise_variance < math.inf:
        raise ValueError(f"noise_variance={noise_variance} must be > 0 and finite; 1.0 is the loss (f - y)^2 / 2")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk={chunk} must be >= 1; leave it out to bound the memory")
    check_posterior(model, posterior)
    check_one_example_at_a_time(model)
    compute = ExampleDeviation(model, posterior, partial(_error, noise_variance=noise_variance), diagonal)
    found: list[tuple[Tensor, ...]] = []
    for part in _parts(loader, chunk or compute.chunk):
        found.append(_rows(compute, part, device_of(model)))
    if not found:
        raise ValueError("the loader gave no example; it must give at least one, pass the training data")
    numbers, targets, outputs, error, deviation = (torch.cat(values) for values in zip(*found, strict=True))
    shift = (
        softmax_slope(outputs, deviation) if score == "probability" and not targets.is_floating_point() else deviation
    )
    return Sensitivity(
        ids=numbers if ids is None else _given(ids, len(numbers)),
        targets=targets,
        outputs=outputs,
        error=error,
        deviation=deviation,
        score=shift.abs().sum(-1),
        noise_variance=noise_variance,
    )


class _Part(NamedTuple):
    """Some examples of one batch."""

    inputs: Any
    targets: Tensor
    ids: Tensor


def _parts(loader: Iterable[Any], chunk: int) -> Iterator[_Part]:
    """The batches of a loader in parts of at most `chunk` examples, with ids or numbers."""
    seen = 0
    for batch in loader:
        has_ids = isinstance(batch, (tuple, list)) and len(batch) == 3
        inputs, targets = split_batch(batch[:2] if has_ids else batch)
        if targets is None:
            raise ValueError("a batch without targets has no error e; the loader must give (inputs, targets), add them")
        if not has_ids:
            check_order(loader)
        targets = torch.as_tensor(targets)
        numbers = torch.as_tensor(batch[2]) if has_ids else torch.arange(seen, seen + len(targets))
        seen += len(targets)
        for start in range(0, len(targets), chunk):
            span = slice(start, start + chunk)
            yield _Part(
                tree_map(lambda x, span=span: x[span] if isinstance(x, Tensor) else x, inputs),
                targets[span],
                numbers[span],
            )


def _rows(compute: ExampleDeviation, part: _Part, device: torch.device) -> tuple[Tensor, ...]:
    """Ids, targets, f, e and V e of a part, on the CPU."""
    outputs, error, deviation = compute(move(part.inputs, device), part.targets.to(device))
    ids = part.ids.cpu()
    targets = part.targets.detach().cpu()
    outputs = outputs.cpu()
    check_outputs(outputs, ids)
    if targets.is_floating_point():
        targets = targets.reshape(outputs.shape).to(outputs.dtype)
    else:
        targets = targets.long()
        check_labels(targets, outputs.shape[-1], ids)
    return ids, targets, outputs, error.cpu(), deviation.cpu()


def _error(outputs: Tensor, target: Tensor, noise_variance: float) -> Tensor:
    """e of one example, shape (C,)."""
    if target.is_floating_point():
        if target.numel() != outputs.numel():
            raise ValueError(
                f"a float target of shape {tuple(target.shape)} must have as many numbers as the outputs, "
                f"{outputs.numel()}; for classes use integer labels"
            )
        return (outputs - target.reshape(-1).to(outputs.dtype)) / noise_variance
    if target.dim() > 0 or outputs.numel() < 2:
        raise ValueError(
            f"an integer target of shape {tuple(target.shape)} with {outputs.numel()} outputs must be one label for "
            ">= 2 classes; for regression use float targets"
        )
    classes = torch.arange(outputs.numel(), device=outputs.device)
    return outputs.softmax(-1) - (classes == target).to(outputs.dtype)


def _given(ids: Sequence[int] | Tensor, count: int) -> Tensor:
    numbers = torch.as_tensor(ids)
    if numbers.shape != (count,):
        raise ValueError(f"{len(numbers)} ids must be as many as the loader's {count} examples; give one for each")
    return numbers
