"""RegMean (Jin et al., 2023): the weights of a linear layer whose outputs are nearest to those of all models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from varlearn.merging.curvature_rules import FLOOR
from varlearn.prediction.loader_batches import arguments, device_of, move, split_batch
from varlearn.types import Params


def regression_mean(
    models: Sequence[Tensor], grams: Sequence[Tensor], weights: Sequence[float], shrinkage: float
) -> Tensor:
    """W = (sum_t w_t G_t)^-1 sum_t w_t G_t W_t for W (in, out), where G_t = X_t^T X_t; the layers here store W^T.

    It is computed as a correction of the mean, so that models which are equal stay what they are.

    Args:
        models: W_t^T, shape (out, in).
        grams: G_t, shape (in, in).
        weights: w_t >= 0.
        shrinkage: factor of the off-diagonals of G_t; 0.9 in the paper, 1 for none.

    Two models whose data use one input each: each input's weight comes from its model.

    >>> first, second = torch.tensor([[1.0, 7.0]]), torch.tensor([[5.0, 2.0]])
    >>> grams = [torch.diag(torch.tensor([4.0, 0.0])), torch.diag(torch.tensor([0.0, 9.0]))]
    >>> [round(weight, 6) for weight in regression_mean([first, second], grams, [1.0, 1.0], 0.9)[0].tolist()]
    [1.0, 2.0]
    """
    device = models[0].device
    diagonal = torch.eye(len(grams[0]), dtype=torch.float64, device=device)
    scaled = [
        weight * gram.to(diagonal) * (shrinkage + (1.0 - shrinkage) * diagonal)
        for weight, gram in zip(weights, grams, strict=True)
    ]
    wide = [model.double() for model in models]
    mean = sum(weight * model for weight, model in zip(weights, wide, strict=True)) / sum(weights)
    total = torch.stack(scaled).sum(0)
    total = total + FLOOR * max(total.diagonal().mean().item(), FLOOR) * diagonal  # inputs that no model has seen
    moved = torch.stack([(model - mean) @ gram for model, gram in zip(wide, scaled, strict=True)]).sum(0)
    return mean + torch.linalg.solve(total, moved, left=False)


@torch.no_grad()
def input_grams(model: nn.Module, loader: Iterable[Any]) -> Params:
    """X^T X of the inputs to every `nn.Linear`, for `merge(..., method="regmean", inputs=...)`.

    A few hundred examples are enough. No labels are needed. A weight that a layer has in common with another module,
    e.g. tied embeddings, is left out; `merge` averages it.

    Args:
        model: in eval mode.
        loader: batches (inputs, targets), mappings, or inputs alone.

    Returns:
        By the name of the layer's weight; shape (in, in), float64.

    >>> input_grams(nn.Linear(2, 1), [torch.tensor([[1.0, 2.0]])])
    {'weight': tensor([[1., 2.],
            [2., 4.]], dtype=torch.float64)}
    """
    grams: Params = {}

    def recorder(name: str) -> Any:
        def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = args[0] if args else kwargs["input"]
            rows = given.detach().reshape(-1, given.shape[-1]).double()
            grams[name] = grams.get(name, 0.0) + rows.T @ rows

        return note

    uses = Counter(id(own) for module in model.modules() for own in module.parameters(recurse=False))
    handles = [
        module.register_forward_pre_hook(recorder(f"{name}.weight" if name else "weight"), with_kwargs=True)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and uses[id(module.weight)] == 1
    ]
    if not handles:
        raise ValueError(
            "the model has no nn.Linear with its own weights, whose inputs RegMean needs; use another method"
        )
    try:
        for batch in loader:
            args, kwargs = arguments(move(split_batch(batch)[0], device_of(model)))
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    if not grams:
        raise ValueError("the loader gave no batch; it must give at least one")
    return grams
