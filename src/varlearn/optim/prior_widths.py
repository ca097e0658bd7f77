"""How wide the prior of each parameter is: w, relative to its weights, of the model; s = w times their size."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from varlearn.core.shards import is_sharded, local
from varlearn.optim.engine.plan import Member
from varlearn.optim.ranks import fsdp

_SMALLEST = 1e-12  # width of the prior of weights that are all 0: no noise that could be seen
_REFRESH = 10  # steps between two measurements of the size of the weights
_PASSES = 10.0  # over the data, below which the noise shrinks: it cannot help a network that sees each example once
_RATE = 0.15  # learning rate in units of the weights' size
_ADAMW_RATE = 1e-3


def is_matrix(param: Tensor) -> bool:
    """Whether a parameter has at least two dimensions larger than 1: gains of shape (1, C, 1, 1) are vectors.

    >>> is_matrix(torch.zeros(3, 2)), is_matrix(torch.zeros(1, 3, 1, 1))
    (True, False)
    """
    return sum([size > 1 for size in param.shape]) > 1


def width_by_depth(matrices: int, passes: float | None = None) -> float:
    """w = 2 / (L + 1) of a network with L weight matrices, at most 1. Noise adds up from layer to layer.

    Args:
        matrices: L.
        passes: of the whole run over the data, if known; below ten, w shrinks in proportion.

    >>> width_by_depth(1), width_by_depth(3), width_by_depth(3, passes=1.0)
    (1.0, 0.5, 0.05)
    """
    return min(1.0, 2.0 / (matrices + 1)) * _share(passes)


def prior_widths(model: nn.Module, passes: float | None = None, pretrained: bool = False) -> dict[str, float]:
    """Name of each trainable parameter -> w, the width of its prior relative to the size of its weights.

    w is `width_by_depth`. Embeddings that are trained from scratch have w = 1, or its share in a short run: a token
    meets one row of them. Pretrained embeddings have the width of the matrices: the rows of tokens that the data do not
    contain get no gradient, so nothing but the prior would limit their noise.

    Args:
        model: the network.
        passes: of the whole run over the data, if known.
        pretrained: whether the weights come from another run.

    >>> prior_widths(nn.Sequential(nn.Embedding(5, 3), *[nn.Linear(3, 3, bias=False) for _ in range(3)]))
    {'0.weight': 1.0, '1.weight': 0.5, '2.weight': 0.5, '3.weight': 0.5}
    """
    embeddings = _embeddings(model)
    params = {name: param for name, param in model.named_parameters() if param.requires_grad}
    matrices = sum(is_matrix(param) and id(param) not in embeddings for param in params.values())
    width, wide = width_by_depth(matrices, passes), _share(passes)
    return {name: wide if id(param) in embeddings and not pretrained else width for name, param in params.items()}


def suggested_lr(model: nn.Module) -> float:
    """A learning rate in units of the weights: 0.15 times the upper median of the matrices' root mean squares.

    For training from scratch. Finetuning takes AdamW's rate. Without a matrix it is AdamW's default, 1e-3.

    >>> net = nn.Linear(2, 2)
    >>> _ = nn.init.constant_(net.weight, 0.02)
    >>> round(suggested_lr(net), 6)
    0.003
    """
    embeddings = _embeddings(model)
    params = [param for param in model.parameters() if param.requires_grad and id(param) not in embeddings]
    sizes = [float(local(param).detach().double().square().mean().sqrt()) for param in params if is_matrix(param)]
    positive = [size for size in sizes if size > 0.0]
    return _RATE * statistics.median_high(positive) if positive else _ADAMW_RATE


def parameter_groups(
    model: nn.Module,
    passes: float | None = None,
    pretrained: bool = False,
    width: float | None = None,
    matrices_only: bool = False,
) -> list[dict[str, Any]]:
    """Parameter groups of equal prior width, in the order of the model.

    Args:
        model: the network.
        passes: of the whole run over the data, if known.
        pretrained: whether the weights come from another run.
        width: one for all parameters in place of `prior_widths`.
        matrices_only: parameters of less than two dimensions get separate groups, without weight decay.

    >>> [group["prior_width"] for group in parameter_groups(nn.Linear(2, 2))]
    [1.0]
    >>> [group.get("weight_decay") for group in parameter_groups(nn.Linear(2, 2), matrices_only=True)]
    [None, 0.0]
    """
    widths = prior_widths(model, passes, pretrained)
    groups: list[dict[str, Any]] = []
    for name, param in model.named_parameters():
        if name in widths:
            own = widths[name] if width is None else width
            if not groups or groups[-1]["prior_width"] != own:
                groups.append({"params": [], "prior_width": own})
            groups[-1]["params"].append((name, param))
    return [part for group in groups for part in _decaying_apart(group)] if matrices_only else groups


def _decaying_apart(group: dict[str, Any]) -> list[dict[str, Any]]:
    """The matrices of a group, and its vectors, which do not decay; without the empty one."""
    vectors = [named for named in group["params"] if named[1].dim() < 2]
    matrices = [named for named in group["params"] if named[1].dim() >= 2]
    parts = group | {"params": matrices}, group | {"params": vectors, "weight_decay": 0.0}
    return [part for part in parts if part["params"]]


def passes_of(group: Mapping[str, Any]) -> float | None:
    """Passes of the whole run over the data, of a parameter group that knows its number of steps.

    >>> passes_of({"steps": 100, "batch_size": 10, "n": 50})
    20.0
    """
    return None if group["steps"] is None else float(group["steps"]) * float(group["batch_size"]) / float(group["n"])


def _share(passes: float | None) -> float:
    return 1.0 if passes is None else min(1.0, passes / _PASSES)


def _embeddings(model: nn.Module) -> set[int]:
    """Ids of the weights of embeddings."""
    return {id(module.weight) for module in model.modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag))}


def measure(members: Sequence[Member], again: bool = False) -> None:
    """Write "prior_std", s, into the states that lack it: w times the root mean square of the present weights.

    A vector takes the size of the matrix before it, because biases start at 0 and gains at 1; without any matrix, that
    of the largest vector. The first size is kept as "prior_rms". It stays a lower bound.

    Args:
        members: all trainable parameters, with the mean in the weights.
        again: measure also those that have one.
    """
    if not again and all(["prior_std" in state for _, state, _, _ in members]):
        return
    sizes = [math.sqrt(size) for size in mean_squares([local(m.param) for m in members], [m.param for m in members])]
    matrices = [size for member, size in zip(members, sizes, strict=True) if is_matrix(member.param)]
    last = matrices[0] if matrices else max(sizes, default=0.0)
    for (param, state, group, _), size in zip(members, sizes, strict=True):
        last = size if is_matrix(param) else last
        if again or "prior_std" not in state:
            width = group["prior_width"]
            width = width_by_depth(len(matrices), passes_of(group)) if width is None else float(width)
            first = state.setdefault("prior_rms", last)
            state["prior_std"] = max(width * max(first, size), _SMALLEST)


def is_due(members: Sequence[Member]) -> bool:
    """Whether the weights are to be measured again after the steps that they have taken.

    >>> [is_due([Member(torch.zeros(1), {"step": step}, {}, 0)]) for step in (9, 10)]
    [False, True]
    """
    return max([int(member.state["step"]) for member in members], default=1) % _REFRESH == 0


@torch.no_grad()
def mean_squares(parts: Sequence[Tensor], params: Sequence[Tensor]) -> list[float]:
    """The mean square of each tensor.

    Args:
        parts: the tensors; of sharded ones this rank's part.
        params: the parameters they belong to, which know on which ranks the other parts are.

    >>> mean_squares([torch.tensor([3.0, 4.0])], [torch.zeros(2)])
    [12.5]
    """
    norms = torch._foreach_norm(list(parts), dtype=torch.float64) if parts else ()
    squares = torch.stack([norm.cpu() for norm in norms]).square() if parts else torch.zeros(0, device="cpu")
    sums = squares.tolist()
    for number, param in enumerate(params):
        if is_sharded(param):
            sums[number] = float(fsdp.combined([param], squares[number].view(1, 1), "sum"))
    return [total / max(1, param.numel()) for param, total in zip(params, sums, strict=True)]
