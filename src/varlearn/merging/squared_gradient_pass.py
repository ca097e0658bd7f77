"""The extra pass over the data that curvature-weighted merging needs where training did not learn the curvature."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from varlearn.core.noise import derive_key
from varlearn.merging.example_squares import example_squares
from varlearn.prediction.loader_batches import arguments, device_of, move, outputs_of, split_batch
from varlearn.types import Params

Labels = Literal["sampled", "true"]
IGNORED = -100
"""The target of a token that has no loss, as in `torch.nn.functional.cross_entropy`."""


def squared_gradients(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    labels: Labels = "sampled",
    examples: int | None = None,
    shift: bool = False,
    seed: int = 0,
) -> Params:
    """sum_i (grad loss_i)^2 over a data set, the paper's SG estimate of the curvature, for `merge(..., hess=...)`.

    Integer targets mean classification, loss_i = -log softmax(f_i)[y_i]; float targets mean regression, loss_i =
    (f_i - y_i)^2 / 2. Targets of several entries per example, e.g. tokens, add up to the loss of the example.

    With labels drawn from the model the expectation is the diagonal of the Fisher matrix; with those of the data it is
    the empirical Fisher, which goes to 0 where the model fits the data.

    Args:
        model: returns logits or an object with `logits`, in eval mode. Every trainable parameter is measured.
        loader: batches (inputs, targets), or mappings with "labels"; without targets for `labels="sampled"`, which then
            means classification.
        labels: "sampled" from the model's softmax, or normal with variance 1 in regression; or "true".
        examples: stop after so many, and scale the sum up to the whole data set; needs a loader with a `dataset`. None
            takes all.
        shift: False where targets[:, t] belong to outputs[:, t]; True for causal models whose labels are the inputs.
        seed: of the drawn labels.

    Returns:
        One tensor per trainable parameter. The unit is the sum of the losses.

    A logit with weight 0: p = 1/2, so that each x gives the square of x / 2 whatever label is drawn.

    >>> class Coin(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = nn.Parameter(torch.zeros(1))
    ...
    ...     def forward(self, x):
    ...         return torch.stack([self.w * x, torch.zeros_like(x)], 1)
    >>> squared_gradients(Coin(), [(torch.tensor([2.0, 4.0]), torch.tensor([0, 1]))])
    {'w': tensor([5.])}
    """
    if labels not in get_args(Labels):
        raise ValueError(f"labels={labels!r} must be one of {', '.join(get_args(Labels))}; 'sampled' is the Fisher's")
    if examples is not None and examples < 1:
        raise ValueError(f"examples={examples} must be >= 1; leave it out to take all")
    _check_eval(model)
    total: Params = {name: torch.zeros_like(p) for name, p in model.named_parameters() if p.requires_grad}
    if not total:
        raise ValueError("the model has no trainable parameter; call requires_grad_() on those to measure")
    device, seen, complete = device_of(model), 0, True
    for number, batch in enumerate(loader):
        if examples is not None and seen >= examples:
            complete = False
            break
        inputs, targets = split_batch(batch)
        args, kwargs = arguments(move(inputs, device))
        with torch.no_grad():
            outputs = outputs_of(model(*args, **kwargs)) if labels == "sampled" or targets is None else None
        wanted = _targets(
            outputs, None if targets is None else torch.as_tensor(targets).to(device), labels, shift, seed, number
        )
        if examples is not None and len(wanted) > examples - seen:
            wanted, complete = wanted[: examples - seen], False
            args, kwargs = _first(args, len(wanted)), _first(kwargs, len(wanted))
        found = example_squares(model, lambda out, want: _loss(outputs_of(out), want, shift), args, kwargs, wanted)
        for name, one in found.items():
            total[name] += one
        seen += len(wanted)
    return _finished(total, seen, loader, complete)


def _check_eval(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if module.training and isinstance(module, (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)):
            raise ValueError(
                f"{name!r} ({type(module).__name__}) is in training mode, so a gradient depends on more than "
                "weights and one example; call model.eval()"
            )


def _targets(outputs: Any, targets: Tensor | None, labels: Labels, shift: bool, seed: int, number: int) -> Tensor:
    """Those of the data, or drawn; aligned with the outputs."""
    if targets is None and labels == "true":
        raise ValueError("the loader gives no targets, which labels='true' needs; use labels='sampled'")
    if targets is not None and shift:
        targets = targets[:, 1:]
    if labels == "true":
        assert targets is not None
        return targets
    logits = outputs[:, :-1] if shift else outputs
    key = derive_key(seed, number, index=0) % 2**63
    generator = torch.Generator().manual_seed(key)
    if targets is not None and targets.is_floating_point():
        return logits + torch.randn(logits.shape, generator=generator).to(logits)
    flat = logits.reshape(-1, logits.shape[-1]).float().softmax(-1).cpu()
    drawn = torch.multinomial(flat, 1, generator=generator).reshape(logits.shape[:-1]).to(logits.device)
    return drawn if targets is None else torch.where(targets == IGNORED, IGNORED, drawn)


def _loss(outputs: Tensor, targets: Tensor, shift: bool) -> Tensor:
    """The sum over examples and tokens."""
    outputs = outputs[:, :-1] if shift else outputs
    if targets.is_floating_point():
        return 0.5 * (outputs.reshape(targets.shape) - targets).square().sum()
    flat = outputs.reshape(-1, outputs.shape[-1])
    return nn.functional.cross_entropy(flat, targets.reshape(-1).long(), reduction="sum", ignore_index=IGNORED)


def _first(tree: Any, count: int) -> Any:
    if isinstance(tree, dict):
        return {name: _first(value, count) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_first(value, count) for value in tree)
    return tree[:count] if isinstance(tree, Tensor) else tree


def _finished(total: Params, seen: int, loader: Iterable[Any], complete: bool) -> Params:
    if seen == 0:
        raise ValueError("the loader gave no batch; it must give at least one")
    scale = 1.0
    if not complete:
        if not hasattr(getattr(loader, "dataset", None), "__len__"):
            raise ValueError("examples= needs the size of the data set to scale the sum up; pass a DataLoader")
        scale = len(loader.dataset) / seen  # type: ignore[attr-defined]
    for name, value in total.items():
        if not value.isfinite().all():
            raise ValueError(f"the squared gradients of {name!r} are NaN or infinite; check the weights and the data")
        value *= scale
    return total
