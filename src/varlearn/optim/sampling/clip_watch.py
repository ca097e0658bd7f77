"""Notice that gradients were clipped between backward and `step()`."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from varlearn.core.dtypes import state_dtype

_WATCHED = 3  # parameters, because the gradient of one may be zero or missing
_ENOUGH = 16  # elements, so that clipping of single elements shows
_SMALL = 4096  # elements that are copied sooner than their norms are taken
_ROUNDING = 1e-6  # clipping by less is not told from rounding
_UNIFORM = 1e-2  # difference of two ratios that bfloat16 gradients may have
Seen = tuple[Tensor, Tensor, bool]  # a gradient, and either a copy of it (True) or its norms


class ClipWatch:
    """By how much the gradient's norm was clipped, judged by a few parameters.

    `clip_grad_norm_` multiplies all gradients by one factor, so it is enough to watch small ones. They are copied when
    backward adds to them (of large ones the norms are taken), and compared at `step()`. Clipping of single elements has
    no such factor and is ignored.

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
        self._seen: dict[int, Seen] = {}  # by id of the parameter

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
            is_small = grad.numel() <= _SMALL
            self._seen[id(param)] = grad, grad.detach().clone() if is_small else _norms(grad), is_small

    def note_all(self) -> None:
        """Take all watched gradients as not clipped: they are means of several samples now."""
        self._seen = {}
        for param, _ in self._hooks:
            self.note(param)

    def factor(self) -> float | Tensor:
        """What undoes the clipping since the last backward: 1 without clipping. What was noted is then forgotten.

        The first watched gradient that is not zero decides. The result is a tensor, so that the host need not wait for
        a device.
        """
        seen, self._seen = self._seen, {}
        if self._are_as_before(seen):
            return 1.0
        found: float | Tensor = 1.0
        for param, _ in reversed(self._hooks):
            grad, before, is_copy = seen.get(id(param), (None, None, False))
            if before is not None and grad is not None and param.grad is grad:
                (norm, largest), (norm_now, largest_now) = _norms(before) if is_copy else before, _norms(grad)
                ratio, other = norm / norm_now, largest / largest_now
                is_clipped = (ratio > 1.0 + _ROUNDING) & ((ratio - other).abs() <= _UNIFORM * ratio)
                tells = (norm > 0.0) & (norm < math.inf) & (norm_now > 0.0)
                found = torch.where(tells, torch.where(is_clipped, ratio, 1.0), found)
        return found

    def _are_as_before(self, seen: Mapping[int, Seen]) -> bool:
        """Whether the first watched gradient that is not zero is, on a CPU, what it was: cheaper to see than norms."""
        for param, _ in self._hooks:
            grad, before, is_copy = seen.get(id(param), (None, None, False))
            if before is not None and grad is not None and param.grad is grad:
                if not is_copy or not grad.is_cpu or not torch.equal(before, grad):
                    return False
                if bool(grad.any()):
                    return True
        return False


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
