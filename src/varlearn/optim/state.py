"""A parameter's state: made at its first sample, and kept in the dtype and memory order that the parameter asks for."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from varlearn.core.shards import placed_like
from varlearn.optim.layout import has_neighbours, side_by_side
from varlearn.optim.tasks import is_dense, state_dtype

# The tensors among "step", "momentum", "hess", "mean" (of a float16 or bfloat16 parameter) and "prior_mean".
TENSORS = ("momentum", "hess", "mean", "prior_mean")


def refuse_missing_values(params: Iterable[Tensor]) -> None:
    """Raise if a parameter cannot be sampled yet."""
    for param in params:
        if param.is_meta or is_lazy(param):
            raise RuntimeError(
                "a parameter has no values yet (meta or lazy initialization); "
                "materialize the model, or run one forward pass, before drawing a sample"
            )


def of(states: MutableMapping[Tensor, Any], param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
    """The parameter's state, made if it is not there, adapted if the model was cast or laid out anew since."""
    dtype = state_dtype(param)
    state = states.get(param, {})
    if "hess" in state and _fits(state, param, dtype):
        return state
    state = states[param]
    with torch.inference_mode(False), torch.no_grad():
        if dtype == param.dtype:
            state.pop("mean", None)
        for name in TENSORS:
            if name in state:
                state[name] = like(param, state[name])
        if "hess" not in state:
            state["step"] = 0
            state["momentum"] = torch.zeros_like(param, dtype=dtype, requires_grad=False)
            state["hess"] = torch.full_like(param, group["hess_init"], dtype=dtype, requires_grad=False)
            if group["prior_mean"] == "init":
                state["prior_mean"] = param.detach().to(dtype, copy=True)
        if dtype != param.dtype and "mean" not in state:
            state["mean"] = param.detach().to(dtype, copy=True)
    return state


def like(param: Tensor, value: Tensor) -> Tensor:
    """A copy of `value` in the state's dtype, on the parameter's device, in its memory order and spread as it is."""
    return torch.empty_like(param, dtype=state_dtype(param), requires_grad=False).copy_(placed_like(param, value))


def settle(states: Sequence[dict[str, Any]]) -> None:
    """Move momentum and h of small parameters side by side, where one operation serves all of them."""
    for name in ("momentum", "hess"):
        small = [state for state in states if type(state[name]) is Tensor and has_neighbours(state[name])]
        with torch.inference_mode(False):
            for state, new in zip(small, side_by_side([state[name] for state in small]), strict=True):
                state[name] = new.copy_(state[name])


def _fits(state: dict[str, Any], param: Tensor, dtype: torch.dtype) -> bool:
    hess = state["hess"]
    in_order = hess.stride() == param.stride() or not is_dense(param)
    return hess.dtype == dtype and in_order and ("mean" in state) == (dtype != param.dtype)
