"""A posterior in a notebook: the scales of its largest tensors."""

from __future__ import annotations

from varlearn.core.notebook import html_table
from varlearn.posterior.summary import layer_scales
from varlearn.types import Posterior

_MOST = 12  # tensors


def posterior_table(posterior: Posterior) -> str:
    """The size of the weights and sigma of the largest tensors.

    >>> import torch
    >>> from varlearn.posterior import Point
    >>> "<td>w</td>" in posterior_table(Point({"w": torch.ones(2)}))
    True
    """
    rows = [
        (layer.name, layer.count, f"{layer.weight_rms:.3g}", f"{layer.std_median:.3g}")
        for layer in layer_scales(posterior, _MOST)
    ]
    return html_table(repr(posterior), rows, ("tensor", "weights", "their size", "sigma, median"))
