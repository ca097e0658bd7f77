"""`sensitivity`: one pass over the data, and what each example's absence would change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Sized
from functools import partial
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from varlearn.posterior import DiagGaussian
from varlearn.prediction.language_model import IGNORE
from varlearn.prediction.loader_batches import device_of, move
from varlearn.prediction.progress import tracked
from varlearn.sensitivities.batch_parts import Part, given_ids, parts
from varlearn.sensitivities.example_deviation import ExampleDeviation, example_at
from varlearn.sensitivities.input_checks import (
    check_labels,
    check_one_example_at_a_time,
    check_outputs,
    check_posterior,
)
from varlearn.sensitivities.loo_estimates import SCORES, Score, Sensitivity, scored
from varlearn.sensitivities.loss_errors import error_of_example, error_of_tokens
from varlearn.sensitivities.token_estimates import TokenSensitivity


@overload
def sensitivity(
    model: nn.Module,
    posterior: DiagGaussian,
    loader: Iterable[Any],
    *,
    ids: Sequence[int] | Tensor | None = None,
    diagonal: bool = False,
    score: Score = "probability",
    noise_variance: float = 1.0,
    per: Literal["example"] = "example",
    shift: bool = False,
    chunk: int | None = None,
    progress: bool | None = None,
) -> Sensitivity: ...


@overload
def sensitivity(
    model: nn.Module,
    posterior: DiagGaussian,
    loader: Iterable[Any],
    *,
    ids: Sequence[int] | Tensor | None = None,
    score: Score = "probability",
    per: Literal["sequence", "token"],
    shift: bool = False,
    chunk: int | None = None,
    progress: bool | None = None,
) -> TokenSensitivity: ...


def sensitivity(
    model: nn.Module,
    posterior: DiagGaussian,
    loader: Iterable[Any],
    *,
    ids: Sequence[int] | Tensor | None = None,
    diagonal: bool = False,
    score: Score = "probability",
    noise_variance: float = 1.0,
    per: Literal["example", "sequence", "token"] = "example",
    shift: bool = False,
    chunk: int | None = None,
    progress: bool | None = None,
) -> Sensitivity | TokenSensitivity:
    """Estimate how the outputs for each training example would change if the example were left out.

    With f the outputs for an example at the posterior mean, J its Jacobian (outputs by weights), e the gradient of its
    loss in f, and sigma^2 the posterior variance, the memory-perturbation equation says

        V = J diag(sigma^2) J^T,    f without the example = f + V e,

    to first order. J^T e is one backward pass and V e = J (sigma^2 * J^T e) one forward-mode product, so the cost does
    not grow with the number of classes. Integer targets mean classification, e = softmax(f) - y; float targets mean
    regression, e = (f - y) / s^2. A network that returns (mean, variance) has e = d(-log p) / d(mean, log variance).

    The equation holds for a posterior with ess = n, the number of training examples, at temperature 1. The variance is
    used as it is: for another ess pass `posterior.tempered(ess / n)`, after `calibrate` `posterior.at_temperature(1)`.
    For a language model n is the number of tokens.

    Args:
        model: returns (B, C), or an object with `logits`; dropout and BatchNorm must be in eval mode. The model is not
            changed.
        posterior: a `DiagGaussian`: IVON's, VAdamW's, or those made up for AdamW and SGD.
        loader: the training data without augmentation: batches (inputs, targets), mappings with "labels", or
            (inputs, targets, ids).
        ids: of the examples in the order of the loader; None numbers them, unless the batches have ids.
        diagonal: v * e with v the diagonal of V, as in the paper's CIFAR-10 appendix; C backward passes per example.
        score: "probability" sums the absolute changes of the probabilities, |Lambda V e| with Lambda = diag(p) - p p^T;
            "paper" those of the logits, |V e|. With "_l2" and "_max" the norm is another. In regression it is |V e|.
        noise_variance: s^2 of a regression's loss (f - y)^2 / (2 s^2); 0.5 if it was trained with `nn.MSELoss`.
        per: for a language model, whose logits are (B, T, V): "sequence" leaves out whole sequences, "token" each token
            alone, at the cost of one pass per token. Targets are (B, T), -100 where there is none.
        shift: for `per` "sequence" and "token": the targets are the inputs themselves, as for Hugging Face models.
        chunk: examples at a time, of `per="token"` tokens; None keeps gradients and activations below 256 MiB. It does
            not change the results.
        progress: True shows a bar, False none; None shows it in a terminal.

    Returns:
        `Sensitivity` in the order of the loader, with ids; for a language model `TokenSensitivity`.

    A weight of variance 0.1 that sees x = 2: V = 0.1 * 2^2, e = 3 - 1.

    >>> net = nn.Linear(1, 1, bias=False)
    >>> q = DiagGaussian({"weight": torch.tensor([[1.5]])}, {"weight": torch.tensor([[1.0]])}, ess=10.0)
    >>> found = sensitivity(net, q, [(torch.tensor([[2.0]]), torch.tensor([[1.0]]))])
    >>> found.deviation, found.loo_outputs
    (tensor([[0.8000]]), tensor([[3.8000]]))
    """
    _check_settings(score, noise_variance, per, diagonal, chunk)
    check_posterior(model, posterior)
    check_one_example_at_a_time(model)
    by_tokens = per != "example"
    error = error_of_tokens if by_tokens else partial(error_of_example, noise_variance=noise_variance)
    compute = ExampleDeviation(model, posterior, error, diagonal, by_tokens)
    size = _Size(compute, chunk, device_of(model))
    found: list[tuple[Tensor, ...]] = []
    batches = len(loader) if isinstance(loader, Sized) else 0
    with tracked("sensitivity", batches, progress if batches else False) as advance:
        for part in parts(_Counted(loader, advance), size if per != "token" else lambda inputs: 1):
            if by_tokens:
                found.append(_tokens(compute, part, score, shift, size if per == "token" else None))
            else:
                found.append(_rows(compute, part, device_of(model)))
    if not found:
        raise ValueError("the loader gave no example; it must give at least one, pass the training data")
    numbers, *values = (torch.cat(column) for column in zip(*found, strict=True))
    numbers = numbers if ids is None else given_ids(ids, len(numbers))
    if by_tokens:
        return TokenSensitivity(numbers, *values, per=per)
    targets, outputs, e, deviation = values
    kind = score.replace("probability", "paper") if targets.is_floating_point() else score
    return Sensitivity(
        ids=numbers,
        targets=targets,
        outputs=outputs,
        error=e,
        deviation=deviation,
        score=scored(kind, outputs, deviation),
        noise_variance=noise_variance,
    )


def _check_settings(score: str, noise_variance: float, per: str, diagonal: bool, chunk: int | None) -> None:
    if score not in SCORES:
        raise ValueError(f"score={score!r} must be one of {', '.join(map(repr, SCORES))}; leave it out for the first")
    if not 0 < noise_variance < math.inf:
        raise ValueError(f"noise_variance={noise_variance} must be > 0 and finite; 1.0 is the loss (f - y)^2 / 2")
    if per not in ("example", "sequence", "token"):
        raise ValueError(f"per={per!r} must be 'example', or 'sequence' or 'token' for a language model")
    if diagonal and per != "example":
        raise ValueError(f"diagonal=True has one backward pass per logit, and per={per!r} has too many; leave it out")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk={chunk} must be >= 1; leave it out to bound the memory")


class _Size:
    """Examples in a part: as told, or measured on the first one."""

    def __init__(self, compute: ExampleDeviation, chunk: int | None, device: torch.device) -> None:
        self._compute, self._chunk, self._device = compute, chunk, device

    def __call__(self, inputs: Any) -> int:
        if self._chunk is None:
            self._chunk = self._compute.chunk(move(inputs, self._device))
        return self._chunk


class _Counted:
    """The batches of a loader, counted; the loader's own attributes can be read."""

    def __init__(self, loader: Iterable[Any], advance: Callable[[int], None]) -> None:
        self._loader, self._advance = loader, advance

    def __iter__(self) -> Any:
        for batch in self._loader:
            yield batch
            self._advance(1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _rows(compute: ExampleDeviation, part: Part, device: torch.device) -> tuple[Tensor, ...]:
    """Ids, targets, f, e and V e of a part, on the CPU."""
    outputs, error, deviation = compute(move(part.inputs, device), part.targets.to(device))
    ids = part.ids.cpu()
    targets = part.targets.detach().cpu()
    outputs = outputs.cpu()
    check_outputs(outputs, ids)
    if targets.is_floating_point():
        targets = targets.reshape(len(outputs), -1).to(outputs.dtype)
    else:
        targets = targets.long()
        check_labels(targets, outputs.shape[-1], ids)
    return ids, targets, outputs, error.cpu(), deviation.cpu()


def _tokens(
    compute: ExampleDeviation, part: Part, score: str, shift: bool, by_token: _Size | None
) -> tuple[Tensor, ...]:
    """Ids, targets, and of every token loss, leave-one-out loss, score and the paper's score, on the CPU."""
    targets = part.targets
    if targets.dim() != 2:
        raise ValueError(
            f"targets of shape {tuple(targets.shape)} must be (B, T), the tokens of a language model; leave per out "
            "for other tasks"
        )
    if shift:
        targets = torch.cat([targets[:, 1:], torch.full_like(targets[:, :1], IGNORE)], 1)
    device = next(iter(compute.mean.values())).device
    inputs, targets = move(part.inputs, device), targets.to(device)
    if by_token is None:
        outputs, _, deviation = compute(inputs, targets)
    else:
        found = compute.by_token(example_at(inputs, 0), targets[0], by_token(inputs))
        outputs, _, deviation = (value[None] for value in found)
    ids = part.ids.cpu()
    check_outputs(outputs.flatten(1).cpu(), ids)
    kept = targets != IGNORE
    check_labels(
        torch.where(kept, targets, 0).flatten().cpu(), outputs.shape[-1], ids.repeat_interleave(targets.shape[1])
    )

    def loss(logits: Tensor) -> Tensor:
        return cross_entropy(logits.flatten(0, 1), targets.flatten().long(), reduction="none", ignore_index=IGNORE)

    columns = [loss(outputs), loss(outputs + deviation)]
    columns += [scored(kind, outputs, deviation).where(kept, 0.0) for kind in (score, "paper")]
    return ids, targets.cpu(), *(column.reshape(targets.shape).cpu() for column in columns)
