"""Where parameters lie from one step to the next.

What a small tensor costs is not its arithmetic but the questions that Python asks about it. Here they are asked once;
afterwards `Addresses.hold` makes sure that nothing has moved.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from torch import Tensor

from varlearn.optim import native
from varlearn.optim.tasks import Draw, Noise, Step

_PLAIN_STATE = 3  # step, momentum, hess
Path = Literal["native", "packed"]


class Addresses:
    """Where a parameter, its h and its momentum lie, while `hold()` says so.

    Attributes:
        param: a plain dense float32 tensor on the CPU.
        state: its state, with "hess" and "momentum" of the same strides.
        index: its number, which is folded into the key of a draw.
        size: number of elements.
        shape: of the parameter.
        stride: of the parameter.
        is_lean: whether the sample is taken out by subtraction, without a copy of the mean.
        path: which of the two that take many parameters in one go.
    """

    __slots__ = (
        "_bytes",
        "_entries",
        "_hess",
        "_momentum",
        "at_hess",
        "at_momentum",
        "at_param",
        "index",
        "is_lean",
        "param",
        "path",
        "shape",
        "size",
        "state",
        "stride",
    )

    def __init__(self, param: Tensor, state: dict[str, Any], index: int, is_lean: bool, path: Path) -> None:
        self.param, self.state, self.index, self.is_lean, self.path = param, state, index, is_lean, path
        self._hess, self._momentum = state["hess"], state["momentum"]
        self._bytes, self._entries = param.nbytes, len(state)
        self.size, self.shape, self.stride = param.numel(), param.shape, param.stride()
        self.at_param, self.at_hess = param.data_ptr(), self._hess.data_ptr()
        self.at_momentum = self._momentum.data_ptr()

    @classmethod
    def of(cls, param: Tensor, state: dict[str, Any], index: int, is_lean: bool, path: Path) -> Addresses | None:
        """The addresses, or None where the parameter, or its state, is not of the kind described above."""
        hess, momentum = state["hess"], state["momentum"]
        task = Draw(param, param, hess, Noise(0, 1.0, 0.0))
        fits = native.supports(task) and native.supports(task._replace(hess=momentum)) and "mean" not in state
        return cls(param, state, index, is_lean, path) if fits else None

    def hold_param(self) -> bool:
        """Whether the parameter is where it was."""
        param = self.param
        return param.data_ptr() == self.at_param and param.nbytes == self._bytes and param.stride() == self.stride

    def hold(self) -> bool:
        """Whether everything is where it was: a tensor can be moved, cast or laid out anew behind its name."""
        param, hess, momentum, state, size = self.param, self._hess, self._momentum, self.state, self._bytes
        return (
            param.data_ptr() == self.at_param
            and param.nbytes == size
            and param.stride() == self.stride
            and state.get("hess") is hess
            and state.get("momentum") is momentum
            and hess.data_ptr() == self.at_hess
            and momentum.data_ptr() == self.at_momentum
            and hess.nbytes == size == momentum.nbytes
            and len(state) == self._entries
        )

    def take(self, grad: Tensor) -> bool:
        """Whether a gradient can be used with these addresses as they are now; a prior of its own is not for here."""
        return (
            native.is_plain(grad)
            and grad.numel() == self.size
            and grad.stride() == self.stride
            and self._entries == _PLAIN_STATE
            and self.hold()
        )


class Row(NamedTuple):
    """A gradient, where it goes, and a task of the same kind, for the scalars that both have in common.

    The key of the kind's noise is that of the whole draw.
    """

    at: Addresses
    grad: Tensor
    kind: Step
