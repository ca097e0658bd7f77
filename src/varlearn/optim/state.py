"""A parameter's state: made at its first sample, in the state's dtype and the parameter's memory order."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from varlearn.core.dtypes import state_dtype
from varlearn.core.memory_order import is_dense, same_order
from varlearn.core.rule import Rule
from varlearn.core.shards import local, placed_like

# Tensors that a parameter may have beside those of the rule: the finer mean of a float16 or bfloat16 parameter, and m0.
OPTIONAL = ("mean", "prior_mean")


def refuse_missing_values(params: Iterable[Tensor]) -> None:
    """Raise if a parameter cannot be sampled yet."""
    for param in params:
        if param.is_meta or is_lazy(param):
            raise RuntimeError(
                "a parameter has no values yet (meta or lazy initialization); "
                "materialize the model, or run one forward pass, before drawing a sample"
            )


def of(states: MutableMapping[Tensor, Any], param: Tensor, group: dict[str, Any], rule: Rule) -> dict[str, Any]:
    """The parameter's state: made if missing, adapted if the model was cast or its memory order has changed."""
    state = states[param]
    adapt(state, param, group, rule)
    return state


def adapt(state: dict[str, Any], param: Tensor, group: dict[str, Any], rule: Rule) -> None:
    """Bring a state into the parameter's memory order and the state's dtype; fill in what is missing."""
    dtype = state_dtype(param)
    if rule.curvature in state and _fits(state, param, dtype, rule):
        return
    with torch.inference_mode(False), torch.no_grad():
        if dtype == param.dtype:
            state.pop("mean", None)
        for name in (*rule.state, *OPTIONAL):
            if name in state:
                state[name] = like(param, state[name])
        if rule.curvature not in state:
            state["step"] = 0
            for name in rule.state:
                first = float(group[rule.initial[name]]) if name in rule.initial else 0.0
                state[name] = torch.full_like(param, first, dtype=dtype, requires_grad=False)
            if group["prior_mean"] == "init":
                state["prior_mean"] = param.detach().to(dtype, copy=True)
        if dtype != param.dtype and "mean" not in state:
            state["mean"] = param.detach().to(dtype, copy=True)


def like(param: Tensor, value: Tensor) -> Tensor:
    """A copy of `value` in the state's dtype, on the parameter's device, in its memory order, and sharded like it."""
    return torch.empty_like(param, dtype=state_dtype(param), requires_grad=False).copy_(placed_like(param, value))


def _fits(state: dict[str, Any], param: Tensor, dtype: torch.dtype, rule: Rule) -> bool:
    tensors = [state[name] for name in (*rule.state, *OPTIONAL) if name in state]
    part = local(param)
    if ("mean" in state) != (dtype != param.dtype):
        return False
    if any(tensor.dtype != dtype or tensor.device != param.device for tensor in tensors):
        return False
    return not is_dense(part) or all(same_order(part, local(tensor)) for tensor in tensors)
