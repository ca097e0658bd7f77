"""Notice that gradients were clipped between backward and `step()`."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from varlearn.core.dtypes import state_dtype

_WATCHED = 3  # parameters, because the gradient of one may be zero or missing
_ENOUGH = 16  # elements, so that clipping of single elements shows
_ROUNDING = 1e-6  # clipping by less is not told from rounding
_UNIFORM = 1e-2  # difference of two ratios that bfloat16 gradients may have


class ClipWatch:
    """By how much the gradient's norm was clipped, judged by a few parameters.

    `clip_grad_norm_` multiplies all gradients by one factor, so it is enough to watch small ones. Their norms are taken
    when backward adds to them, and again at `step()`. Clipping of single elements has no such factor and is ignored.

    >>> weight, watch = torch.nn.Parameter(torch.ones(2)), ClipWatch()
    >>> watch.watch([weight])
    >>> (3.0 * weight).sum().backward()
    >>> weight.grad.mul_(0.5)
    tensor([1.5000, 1.5000])
    >>> watch.factor()
    tensor(2., dtype=torch.float64)
    """

    def __init__(self) -> None:
        self._hooks: list[tuple[Tensor, RemovableHandle]] = []
        self._seen: dict[int, tuple[Tensor, Tensor]] = {}  # id of a parameter -> its gradient, and norms of that

    def watch(self, params: Sequence[Tensor]) -> None:
        """Watch gradients of some of these parameters from now on, and no others."""
        some = [param for param in params if param.numel() > 0]
        chosen = sorted(some, key=lambda param: (param.numel() < _ENOUGH, param.numel()))[:_WATCHED]
        if list(map(id, chosen)) == [id(param) for param, _ in self._hooks]:
            return
        for _, handle in self._hooks:
            handle.remove()
        self._seen = {}
        noting = _noting(weakref.ref(self))
        self._hooks = [(param, param.register_post_accumulate_grad_hook(noting)) for param in chosen]

    def note(self, param: Tensor) -> None:
        """Take the gradient of a watched parameter, as it is now, as not clipped."""
        grad = param.grad
        if grad is not None and grad.layout is torch.strided:
            self._seen[id(param)] = grad, _norms(grad)

    def note_all(self) -> None:
        """Take all watched gradients as not clipped: they are means of several samples now."""
        self._seen = {}
        for param, _ in self._hooks:
            self.note(param)

    def factor(self) -> float | Tensor:
        """What undoes the clipping since the last backward: 1 without clipping. The next step starts anew.

        The first watched gradient that is not zero decides. The result is a tensor, so that nobody waits for a device.
        """
        seen, self._seen = self._seen, {}
        found: float | Tensor = 1.0
        for param, _ in reversed(self._hooks):
            grad, before = seen.get(id(param), (None, None))
            if before is not None and grad is not None and param.grad is grad:
                (norm, largest), (norm_now, largest_now) = before, _norms(grad)
                ratio, other = norm / norm_now, largest / largest_now
                is_clipped = (ratio > 1.0 + _ROUNDING) & ((ratio - other).abs() <= _UNIFORM * ratio)
                tells = (norm > 0.0) & (norm < math.inf) & (norm_now > 0.0)
                found = torch.where(tells, torch.where(is_clipped, ratio, 1.0), found)
        return found


@torch.no_grad()
def _norms(grad: Tensor) -> Tensor:
    """The 2-norm and the largest absolute entry."""
    dtype = state_dtype(grad)
    orders = (2.0, float("inf"))
    return torch.stack([torch.linalg.vector_norm(grad, order, dtype=dtype) for order in orders]).double()


def _noting(watch: weakref.ref[ClipWatch]) -> Callable[[Tensor], None]:
    def note(param: Tensor) -> None:
        if (alive := watch()) is not None:
            alive.note(param)

    return note
