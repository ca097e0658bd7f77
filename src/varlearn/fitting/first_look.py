"""What the first batch tells: the task, the number of classes, and whether the network fits the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from varlearn.fitting.array_inputs import weights_dtype
from varlearn.fitting.own_batches import OwnBatches
from varlearn.methods import Task
from varlearn.optim.loader_facts import loader_facts
from varlearn.prediction.guard import preserved
from varlearn.prediction.language_model import IGNORE
from varlearn.prediction.loader_batches import arguments, device_of, move, outputs_of

_ASK = 'pass task="classification", "regression" or "language"'


@dataclass(frozen=True)
class Look:
    """What is known of network and data before training.

    Attributes:
        task: what the network is trained to do.
        n: terms of the training loss: examples, for language models tokens.
        batch_size: terms per batch.
        classes: outputs of a classifier or language model; 0 for regression.
        has_variance: whether the network returns a pair (mean, variance).
    """

    task: Task
    n: int
    batch_size: int
    classes: int
    has_variance: bool

    def checked(self, targets: Tensor) -> Tensor:
        """Targets of a batch as the loss takes them; refused where a label is no class or a number is not finite."""
        if self.task == "regression":
            if not bool(targets.isfinite().all()):
                raise ValueError("targets are NaN or infinite, and regression needs numbers; remove these examples")
            return targets if targets.is_floating_point() else targets.float()
        labels = targets[targets != IGNORE] if self.task == "language" else targets
        if labels.numel():
            low, high = int(labels.min()), int(labels.max())
            if low < 0 or high >= self.classes:
                raise ValueError(
                    f"label {low if low < 0 else high} must be between 0 and {self.classes - 1}, because the network "
                    f"has {self.classes} outputs; renumber the labels, or give the network as many outputs as classes"
                )
        return targets.long()


def look(model: nn.Module, batches: OwnBatches, task: str | None = None) -> Look:
    """Run the network on the first batch, and tell what it is for.

    Args:
        model: left as it was.
        batches: of training.
        task: the user's choice; None decides by outputs and targets.

    >>> data = OwnBatches([(torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]))], "train_loader")
    >>> look(nn.Linear(2, 3), data)
    Look(task='classification', n=4, batch_size=4, classes=3, has_variance=False)
    """
    if task is not None and task not in get_args(Task):
        raise ValueError(
            f"task={task!r} must be one of {', '.join(get_args(Task))}; leave it out to decide by the data"
        )
    if any(isinstance(param, nn.UninitializedParameter) for param in model.parameters()):
        raise ValueError("the model has lazy layers without weights; call model(inputs) with one batch first")
    if not any(param.requires_grad for param in model.parameters()):
        raise ValueError("the model has no parameter with requires_grad=True, so there is nothing to train")
    inputs, targets = next(iter(batches))
    if targets.dim() == 0:
        raise ValueError(
            f"the targets of {batches.name} are single numbers, not batches; use a DataLoader or stack them"
        )
    outputs = first_outputs(model, inputs, f"the first batch of {batches.name}")
    has_variance = not isinstance(outputs, Tensor)
    first = outputs[0] if has_variance else outputs
    found = _task(outputs, targets) if task is None else task
    shapes = f"outputs of shape {tuple(first.shape)} and targets of shape {tuple(targets.shape)}"
    match found:
        case "classification":
            fits = not has_variance and first.dim() == 2 and first.shape[1] >= 2 and targets.shape == first.shape[:1]
            rule = "classification needs logits (B, C) with C >= 2 and labels (B,)"
        case "language":
            fits = not has_variance and first.dim() == 3 and targets.shape == first.shape[:2]
            rule = "a language model needs logits (B, T, V) and tokens (B, T)"
        case _:
            fits = first.shape[0] == targets.shape[0] and first.numel() == targets.numel()
            rule = "regression needs as many outputs as targets"
    if not fits:
        raise ValueError(f"{shapes} do not fit: {rule}; change the last layer or the targets")
    if found != "regression" and _adds_up_to_one(first):
        raise ValueError(
            f"the outputs for the first batch of {batches.name} are probabilities, and the loss takes logits; leave "
            "the softmax at the end of the network out"
        )
    terms = targets.numel() // len(targets) if found == "language" else 1
    n, size = _counts(batches, len(targets))
    if n % size == 1 and n > 1 and not getattr(batches.loader, "drop_last", False):
        _check_single(model, inputs, batches.name)
    classes = 0 if found == "regression" else first.shape[-1]
    return Look(found, n * terms, min(size, n) * terms, classes, has_variance)  # type: ignore[arg-type]


def first_outputs(model: nn.Module, inputs: Any, batch: str) -> Tensor | tuple[Tensor, Tensor]:
    """What the untrained network returns for a batch: one finite float tensor, or a pair (mean, variance).

    Args:
        model: left as it was.
        inputs: of the batch.
        batch: which one it is, for messages.
    """
    with preserved(model), torch.no_grad():
        model.eval()
        args, kwargs = arguments(move(inputs, device_of(model)))
        try:
            outputs = outputs_of(model(*args, **kwargs))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            weights = str(weights_dtype(model)).removeprefix("torch.")
            raise ValueError(
                f"the network fails on {batch}: {str(error).splitlines()[0]}. Its inputs are {_described(inputs)}, its "
                f"weights {weights}; convert the inputs to the dtype and the shape that the first layer takes"
            ) from error
    parts: list[Tensor] = [outputs] if isinstance(outputs, Tensor) else outputs
    if (
        not isinstance(parts, (tuple, list))
        or len(parts) not in (1, 2)
        or not all(isinstance(p, Tensor) for p in parts)
    ):
        raise TypeError(
            f"the network returned a {type(outputs).__name__}; it must return a tensor, a pair (mean, variance), or an "
            "object with `logits`. Wrap it in a module that does"
        )
    for part in parts:
        if not part.is_floating_point() or part.dim() == 0:
            raise TypeError(
                f"the network returned {part.dtype} of shape {tuple(part.shape)}, and outputs must be floating-point "
                "with one row per example; return logits or values, not classes or a loss"
            )
        if not bool(part.isfinite().all()):
            given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            if not all(bool(value.isfinite().all()) for value in given):
                raise ValueError(f"the inputs of {batch} are NaN or infinite; leave them out, or fill in their values")
            raise ValueError(f"the outputs for {batch} are NaN or infinite; check the inputs, and scale them")
    return outputs if isinstance(outputs, Tensor) else (parts[0], parts[1])


def _adds_up_to_one(outputs: Tensor) -> bool:
    """Whether each row is a probability of every class."""
    rounding = max(1e-4, 4 * torch.finfo(outputs.dtype).eps)
    return bool((outputs >= 0).all()) and bool(((outputs.double().sum(-1) - 1).abs() < rounding).all())


def _check_single(model: nn.Module, inputs: Any, name: str) -> None:
    """Refuse a last batch of one example where BatchNorm needs more, which would show at the end of the first pass."""
    normed = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
    if not normed or not isinstance(inputs, Tensor):
        return
    with preserved(model), torch.no_grad():
        model.train()
        try:
            model(inputs[:1].to(device_of(model)))
        except ValueError as error:
            raise ValueError(
                f"the last batch of {name} has one example, and BatchNorm needs two or more while training; make the "
                "loader with drop_last=True, or change its batch size"
            ) from error


def _described(inputs: Any) -> str:
    """Types and shapes, e.g. "float64 (32, 5)"."""
    if isinstance(inputs, Tensor):
        return f"{str(inputs.dtype).removeprefix('torch.')} {tuple(inputs.shape)}"
    if isinstance(inputs, Mapping):
        return ", ".join(f"{name}: {_described(value)}" for name, value in inputs.items())
    if isinstance(inputs, (tuple, list)):
        return ", ".join(map(_described, inputs))
    return f"of type {type(inputs).__name__}"


def _task(outputs: Tensor | tuple[Tensor, Tensor], targets: Tensor) -> Task:
    if not isinstance(outputs, Tensor):
        return "regression"
    shapes = f"outputs of shape {tuple(outputs.shape)} and {targets.dtype} targets of shape {tuple(targets.shape)}"
    same = outputs.numel() == targets.numel()
    if not targets.is_floating_point():
        if outputs.dim() == 2 and outputs.shape[1] >= 2 and targets.dim() == 1:
            return "classification"
        if outputs.dim() == 3 and targets.dim() == 2:
            return "language"
        raise ValueError(f"{shapes} tell no task; {_cure(outputs, targets, same)}")
    if not same:
        whole = bool((targets == targets.round()).all())
        cure = "for classification give integer labels, targets.long()" if whole else "change the last layer"
        raise ValueError(f"{shapes} do not fit: numbers need one output each; {cure}")
    rows = targets.reshape(len(targets), -1)
    if rows.shape[1] > 1 and bool((rows >= 0).all()) and bool(((rows.sum(1) - 1).abs() < 1e-3).all()):
        raise ValueError(
            f"{shapes} tell no task, because every row of targets adds up to 1; for classes give labels, "
            f'targets.argmax(1), and for numbers pass task="regression"'
        )
    if len(rows) > 1 and bool(((rows == 0) | (rows == 1)).all()) and bool((rows != rows[0]).any()):
        raise ValueError(
            f"{shapes} tell no task, because all targets are 0 or 1; for two classes return two logits and give "
            f'labels, targets.flatten().long(), and for numbers pass task="regression"'
        )
    return "regression"


def _cure(outputs: Tensor, targets: Tensor, same: bool) -> str:
    """What to change where whole numbers as targets do not tell the task."""
    if outputs.dim() == 2 and outputs.shape[1] >= 2 and targets.dim() == 2:
        if targets.shape[1] == 1:
            return "for classes give labels of shape (B,), targets.squeeze(1)"
        if same and bool((targets.sum(1) == 1).all()):
            return "for classes give labels, targets.argmax(1)"
    return "for two classes return two logits; for numbers give float targets" if same else _ASK


def _counts(batches: OwnBatches, first: int) -> tuple[int, int]:
    """Examples in one pass, and in a batch."""
    facts = loader_facts(batches.loader)
    if hasattr(batches.loader, "dataset") and facts.keys() >= {"n", "batch_size"}:
        return facts["n"], facts["batch_size"]
    return sum(len(targets) for _, targets in batches), first
