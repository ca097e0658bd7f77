"""The gradients of single examples in the weights of one layer, from its inputs and the gradient of its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import tree_leaves, tree_map

MAX_BYTES = 2**26
"""The gradients of single examples that are kept at a time."""


class Use:
    """One call of a layer: what went in, and what came back to its output.

    Args:
        module: the layer.
        args: its positional arguments.
        kwargs: its named arguments.
        output: what it returned.
    """

    def __init__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any):
        self.module, self.output = module, output
        self.inputs = (args, dict(kwargs))
        self.slope: Tensor = torch.empty(0)
        self._versions = [leaf._version for leaf in self._tensors()]

    @property
    def changed(self) -> bool:
        """Whether an operation in place has changed the inputs or the output since."""
        return self._versions != [leaf._version for leaf in self._tensors()]

    def _tensors(self) -> list[Tensor]:
        found = [leaf for leaf in tree_leaves(self.inputs) if isinstance(leaf, Tensor)]
        return [*found, self.output] if isinstance(self.output, Tensor) else found

    def fits(self, examples: int) -> bool:
        """Whether the output and all inputs have this many examples in their first dimension."""
        tensors = [leaf for leaf in tree_leaves(self.inputs) if isinstance(leaf, Tensor)]
        return all(one.dim() > 0 and len(one) == examples for one in [*tensors, self.slope])

    def holds(self, param: Tensor) -> bool:
        """Whether the layer has this parameter."""
        return any(own is param for own in self.module.parameters(recurse=False))

    def name_of(self, param: Tensor) -> str:
        """The layer's name for the parameter."""
        return next(name for name, own in self.module.named_parameters(recurse=False) if own is param)


def add_squares(total: Tensor, uses: Sequence[Use], param: Tensor) -> None:
    """Add sum_i (gradient of example i)^2 to `total`; the gradient is the sum over the layer's calls.

    >>> layer = nn.Linear(2, 1)
    >>> use = Use(layer, (torch.tensor([[1.0, 2.0], [3.0, 0.0]]),), {}, None)
    >>> use.slope = torch.tensor([[1.0], [2.0]])
    >>> total = torch.zeros(1, 2)
    >>> add_squares(total, [use], layer.weight)
    >>> total  # 1 + 36, 4 + 0
    tensor([[37.,  4.]])
    """
    if not uses:
        return
    if len(uses) == 1 and _add_fast(total, uses[0], param):
        return
    examples = len(uses[0].slope)
    step = max(1, MAX_BYTES // max(1, total.numel() * total.element_size()))
    for start in range(0, examples, step):
        rows = slice(start, min(start + step, examples))
        whole = per_example(uses[0], param, rows)
        for use in uses[1:]:
            whole = whole + per_example(use, param, rows)
        total += whole.square().sum(0)


def per_example(use: Use, param: Tensor, rows: slice) -> Tensor:
    """The gradient of each of these examples, shape (b, *param.shape)."""
    name, slope = use.name_of(param), use.slope[rows]
    (args, kwargs), weight = use.inputs, param.dtype
    if type(use.module) is nn.Linear and not kwargs:
        g = slope.to(weight).reshape(len(slope), -1, slope.shape[-1])  # (b, T, out)
        if name == "bias":
            return g.sum(1)
        a = args[0][rows].detach().to(weight)
        return torch.bmm(g.mT, a.reshape(len(a), -1, a.shape[-1]))
    leaves = [leaf for leaf in tree_leaves(use.inputs) if isinstance(leaf, Tensor)]

    def one(given: list[Tensor], back: Tensor) -> Tensor:
        values = iter(given)
        first, named = tree_map(lambda x: next(values).unsqueeze(0) if isinstance(x, Tensor) else x, (args, kwargs))
        call = lambda value: functional_call(use.module, {name: value}, first, named)  # noqa: E731
        output, pull_back, *_ = vjp(call, param.detach())
        return pull_back(back.unsqueeze(0).to(output.dtype))[0]

    with torch.no_grad():
        return vmap(one)([leaf[rows].detach() for leaf in leaves], slope)


def _add_fast(total: Tensor, use: Use, param: Tensor) -> bool:
    """Shorter ways for the layers that have most weights; False where there is none."""
    args, slope = use.inputs[0], use.slope.to(param.dtype)
    if type(use.module) is nn.Linear and slope.dim() == 2 and args:
        squares = slope.square()
        if use.name_of(param) == "bias":
            total += squares.sum(0)
        else:
            total.addmm_(squares.mT, args[0].detach().to(param.dtype).square())
        return True
    if type(use.module) is nn.Embedding and args and not (use.module.scale_grad_by_freq or use.module.sparse):
        ids, padding = args[0].reshape(len(slope), -1), use.module.padding_idx
        examples = torch.arange(len(ids), device=ids.device).unsqueeze(1).expand_as(ids)
        pairs = torch.stack([ids.flatten(), examples.flatten()], 1)
        seen, place = pairs.unique(dim=0, return_inverse=True)
        sums = slope.new_zeros(len(seen), slope.shape[-1]).index_add_(0, place, slope.reshape(-1, slope.shape[-1]))
        if padding is not None:
            sums[seen[:, 0] == padding] = 0.0
        total.index_add_(0, seen[:, 0], sums.square_())
        return True
    return False
