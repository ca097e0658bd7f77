"""Where parameters lie from one step to the next.

What a small tensor costs is not its arithmetic but the questions that Python asks about it. Here they are asked once;
afterwards `Addresses.hold` makes sure that nothing has moved.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from torch import Tensor

from varlearn.core.shards import PLAIN
from varlearn.optim import native
from varlearn.optim.tasks import Step, is_dense

_PLAIN_STATE = 3  # step, momentum, hess
BatchPath = Literal["native", "packed"]


class Addresses:
    """Where a parameter, its h and its momentum lie, while `hold()` says so.

    Attributes:
        param: a plain dense tensor.
        state: its state, with "hess" and "momentum" of the same dtype, device and strides.
        index: its number, which is folded into the key of a draw.
        path: which of the two that take many parameters in one go.
        asked: what the group said about paths and memory.
        is_lean: whether the sample is taken out by subtraction, without a copy of the mean.
        size: number of elements.
        shape: of the parameter.
        stride: of the parameter.
    """

    __slots__ = (
        "_bytes",
        "_dtype",
        "_entries",
        "_hess",
        "_is_cpu",
        "_momentum",
        "asked",
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

    def __init__(
        self, param: Tensor, state: dict[str, Any], group: dict[str, Any], index: int, path: BatchPath
    ) -> None:
        self.param, self.state, self.index = param, state, index
        self.path: BatchPath = path
        self.asked = asked(group)
        self.is_lean = group["memory"] == "lean"
        self._hess, self._momentum = state["hess"], state["momentum"]
        self._bytes, self._entries = param.nbytes, len(state)
        self._dtype, self._is_cpu = param.dtype, param.is_cpu
        self.size, self.shape, self.stride = param.numel(), param.shape, param.stride()
        self.at_param, self.at_hess = param.data_ptr(), self._hess.data_ptr()
        self.at_momentum = self._momentum.data_ptr()

    @classmethod
    def of(
        cls, param: Tensor, state: dict[str, Any], group: dict[str, Any], index: int, path: BatchPath
    ) -> Addresses | None:
        """The addresses, or None where the parameter, or its state, is not of the kind described above."""
        if type(param) not in PLAIN or "mean" in state or not is_dense(param):
            return None
        for tensor in (state["hess"], state["momentum"]):
            is_alike = tensor.dtype == param.dtype and tensor.device == param.device
            if type(tensor) is not Tensor or not is_alike or tensor.stride() != param.stride():
                return None
        return cls(param, state, group, index, path)

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
            type(grad) in PLAIN
            and grad.dtype is self._dtype
            and grad.is_cpu is self._is_cpu
            and native.is_written_out(grad)
            and grad.numel() == self.size
            and grad.stride() == self.stride
            and self._entries == _PLAIN_STATE
            and self.hold()
        )


def asked(group: dict[str, Any]) -> tuple[object, ...]:
    """What a group says about paths and memory."""
    return group["fused"], group["foreach"], group["memory"]


class Row(NamedTuple):
    """A gradient, where it goes, and a task of the same kind, for the scalars that both have in common.

    The key of the kind's noise is that of the whole draw.
    """

    at: Addresses
    grad: Tensor
    kind: Step
