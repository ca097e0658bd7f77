"""Notice that gradients were clipped between backward and `step()`."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from torch import Tensor
from torch.utils.hooks import RemovableHandle

_ROUNDING = 1e-3  # clipping by less is not told from rounding


class ClipWatch:
    """By how much the gradient's norm was clipped, judged by one parameter.

    `clip_grad_norm_` multiplies all gradients by one factor, so it is enough to watch one of them. Its norm is taken
    when backward adds to it, and again at `step()`.
    """

    def __init__(self) -> None:
        self._seen: tuple[Tensor, Tensor] | None = None  # the gradient, and its norm when backward left it
        self._hook: tuple[Tensor, RemovableHandle] | None = None

    def watch(self, param: Tensor) -> None:
        """Watch the gradient of this parameter from now on, and of no other."""
        if self._hook is not None:
            if self._hook[0] is param:
                return
            self._hook[1].remove()
        self._hook = param, param.register_post_accumulate_grad_hook(_noting(weakref.ref(self)))

    def note(self, grad: Tensor) -> None:
        """Backward has added to the watched gradient."""
        self._seen = grad, grad.detach().norm()

    def factor(self) -> float:
        """What undoes the clipping since the last backward: 1 without clipping."""
        if self._hook is None or self._seen is None or self._hook[0].grad is not self._seen[0]:
            return 1.0
        grad, before = self._seen
        now, then = float(grad.norm()), float(before)
        return then / now if 0.0 < now < then * (1.0 - _ROUNDING) < float("inf") else 1.0


def _noting(watch: weakref.ref[ClipWatch]) -> Callable[[Tensor], None]:
    def note(param: Tensor) -> None:
        if (alive := watch()) is not None and param.grad is not None:
            alive.note(param.grad)

    return note
