"""How wide the prior of each parameter is, relative to its weights: what an optimizer cannot know, and a model can."""

from __future__ import annotations

from typing import Any

from torch import nn

_LAYERS = 2.0  # matrices up to which noise as large as the weights themselves does no harm


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
    width = min(1.0, _LAYERS / max(1, matrices))
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
