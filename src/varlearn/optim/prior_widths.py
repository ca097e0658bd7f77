"""How wide the prior of each parameter is: w, relative to its weights, of the model; s = w times their size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from varlearn.core.dtypes import state_dtype
from varlearn.core.shards import local
from varlearn.optim.engine.plan import Member
from varlearn.optim.ranks import fsdp

_LAYERS = 2.0  # matrices up to which noise as large as the weights themselves does no harm
_SMALLEST = 1e-12  # width of the prior of weights that are all 0: no noise that could be seen


def prior_widths(model: nn.Module) -> dict[str, float]:
    """Name of each trainable parameter -> w, the width of its prior relative to the size of its weights.

    w is min(1, 2 / number of weight matrices). Noise adds up from layer to layer, so deep networks bear less of it.
    Embeddings have w = 1: a token meets one row of them.

    >>> prior_widths(nn.Sequential(nn.Embedding(5, 3), *[nn.Linear(3, 3, bias=False) for _ in range(4)]))
    {'0.weight': 1.0, '1.weight': 0.5, '2.weight': 0.5, '3.weight': 0.5, '4.weight': 0.5}
    """
    kinds = nn.Embedding, nn.EmbeddingBag
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, kinds)}
    params = {name: param for name, param in model.named_parameters() if param.requires_grad}
    matrices = sum(param.dim() > 1 and id(param) not in embeddings for param in params.values())
    width = _width(matrices)
    return {name: 1.0 if id(param) in embeddings else width for name, param in params.items()}


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Parameter groups of equal prior width, in the order of the model.

    >>> [group["prior_width"] for group in parameter_groups(nn.Linear(2, 2))]
    [1.0]
    """
    widths = prior_widths(model)
    groups: list[dict[str, Any]] = []
    for name, param in model.named_parameters():
        if name in widths:
            if not groups or groups[-1]["prior_width"] != widths[name]:
                groups.append({"params": [], "prior_width": widths[name]})
            groups[-1]["params"].append((name, param))
    return groups


def measure(members: Sequence[Member], again: bool = False) -> None:
    """Write "prior_std", s, into the states that lack it: w times the root mean square of the weights as they are.

    A vector takes the size of the matrix before it, because biases start at 0 and gains at 1; without any matrix, that
    of the largest vector. The first size is kept as "prior_rms". It stays a lower bound.

    Args:
        members: all trainable parameters, with the mean in the weights.
        again: measure also those that have one.
    """
    if not again and all(["prior_std" in state for _, state, _, _ in members]):
        return
    sizes = [math.sqrt(size) for size in mean_squares([local(m.param) for m in members], [m.param for m in members])]
    matrices = [size for member, size in zip(members, sizes, strict=True) if member.param.dim() > 1]
    last = matrices[0] if matrices else max(sizes, default=0.0)
    for (param, state, group, _), size in zip(members, sizes, strict=True):
        last = size if param.dim() > 1 else last
        if again or "prior_std" not in state:
            width = _width(len(matrices)) if group["prior_width"] is None else float(group["prior_width"])
            first = state.setdefault("prior_rms", last)
            state["prior_std"] = max(width * max(first, size), _SMALLEST)


@torch.no_grad()
def mean_squares(parts: Sequence[Tensor], params: Sequence[Tensor]) -> list[float]:
    """The mean square of each tensor.

    Args:
        parts: the tensors; of sharded ones this rank's part.
        params: the parameters they belong to, which know on which ranks the other parts are.

    >>> mean_squares([torch.tensor([3.0, 4.0])], [torch.zeros(2)])
    [12.5]
    """
    norms = [torch.linalg.vector_norm(part, dtype=state_dtype(part)).double().cpu() for part in parts]
    sums = [fsdp.combined([param], norm.square().view(1, 1), "sum") for param, norm in zip(params, norms, strict=True)]
    return [float(total) / max(1, param.numel()) for param, total in zip(params, sums, strict=True)]


def _width(matrices: int) -> float:
    return min(1.0, _LAYERS / max(1, matrices))
