"""Load an optimizer state: checked before anything changes, in the state's own dtype; also from ivon-opt."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from varlearn.core.dtypes import state_dtype
from varlearn.core.rule import Rule
from varlearn.core.shards import local
from varlearn.optim import hyper
from varlearn.optim.state import OPTIONAL, like


def prepare(optimizer: Optimizer, state_dict: dict[str, Any], rule: Rule) -> dict[str, Any]:
    """The state dict as it will be loaded: converted where it is ivon-opt's, refused where it is not sound."""
    groups = state_dict["param_groups"]
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in optimizer.param_groups]:
        raise ValueError(
            f"the loaded state has groups of {[len(group['params']) for group in groups]} parameters, the optimizer of "
            f"{[len(group['params']) for group in optimizer.param_groups]}; build the optimizer as when it was saved"
        )
    if groups and "hess" in groups[0]:
        state_dict = _from_ivon_opt(optimizer, state_dict)
    # Older versions saved this key after a resume; it means nothing here.
    groups = [{k: v for k, v in group.items() if k != "differentiable"} for group in state_dict["param_groups"]]
    state_dict = {**state_dict, "param_groups": groups}
    ids = [index for group in state_dict["param_groups"] for index in group["params"]]
    params = [param for group in optimizer.param_groups for param in group["params"]]
    owners = [group for group in state_dict["param_groups"] for _ in group["params"]]
    for group in state_dict["param_groups"]:
        known = {name: group.get(name, default) for name, default in optimizer.defaults.items()}
        hyper.check(known)  # another optimizer's words may mean other things
    for index, param, group in zip(ids, params, owners, strict=True):
        state = state_dict["state"].get(index, {})
        if state:
            _check(index, param, state, optimizer.defaults | group, rule)
    return state_dict


def undo_cast(optimizer: Optimizer, state_dict: dict[str, Any], rule: Rule) -> None:
    """PyTorch casts loaded state to the parameter's dtype; bring back the values as saved, in the state's dtype."""
    ids = [index for group in state_dict["param_groups"] for index in group["params"]]
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for index, param in zip(ids, params, strict=True):
        saved = state_dict["state"].get(index, {})
        state = optimizer.state[param] if saved else {}
        for name in (*rule.state, *OPTIONAL):
            if name in saved:
                state[name] = like(param, saved[name])
        if "step" in saved:
            state["step"] = int(saved["step"])
        low_precision = state_dtype(param) != param.dtype
        if rule.curvature in state and low_precision and "mean" not in state:
            state["mean"] = like(param, param.detach())
        elif not low_precision:
            state.pop("mean", None)


def _check(index: int, param: Tensor, state: dict[str, Any], group: dict[str, Any], rule: Rule) -> None:
    missing = set(rule.state) - set(state)
    if missing and set(state) != {"prior_mean"}:
        raise ValueError(
            f"the loaded state of parameter {index} has {sorted(map(str, state))} and lacks {sorted(missing)}: "
            "it was saved by another optimizer; start without it"
        )
    for name in (*rule.state, *OPTIONAL):
        if name in state:
            _check_tensor(f"{name} of parameter {index}", param, state[name])
    if "hess" in state:
        precision = local(state["hess"]).to(state_dtype(param)) + float(group["weight_decay"])
        if precision.numel() and float(precision.min()) <= 0.0:
            raise ValueError(
                f"the loaded hess of parameter {index} gives a precision h + delta of {float(precision.min()):g}, "
                "which must be > 0; load it with the weight_decay it was saved with"
            )
        step = state.get("step")
        if not isinstance(step, (int, Tensor)) or int(step) < 0:
            raise ValueError(f"the loaded step of parameter {index} is {step!r}; it must be an integer >= 0")


def _check_tensor(what: str, param: Tensor, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"the loaded {what} is a {type(value).__name__}; it must be a tensor")
    if value.shape != param.shape:
        raise ValueError(
            f"the loaded {what} has shape {tuple(value.shape)}, the parameter {tuple(param.shape)}; "
            "load it into the model it was saved from"
        )
    if not bool(local(value).to(state_dtype(param)).isfinite().all()):
        raise ValueError(f"the loaded {what} has NaN or infinite entries; use an older checkpoint")


def _from_ivon_opt(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """Split ivon-opt's flat tensors, one per group, into the state of each parameter.

    ivon-opt does not save its step count. Its momentum is loaded as one whose debiasing is over, which holds from the
    150th step on at beta1 = 0.9 in float32.
    """
    state: dict[int, dict[str, Any]] = {}
    groups = []
    for ours, theirs in zip(optimizer.param_groups, state_dict["param_groups"], strict=True):
        flat = {name: theirs[name] for name in ("momentum", "hess")}
        numel = sum(param.numel() for param in ours["params"])
        for name, tensor in flat.items():
            if tensor.numel() != numel:
                raise ValueError(
                    f"the loaded {name} has {tensor.numel()} entries, the group {numel} parameters; "
                    "load it into the model it was saved from"
                )
        kept = {name: value for name, value in theirs.items() if name in ours and name not in flat}
        groups.append({**{k: v for k, v in ours.items() if k != "params"}, **kept, "params": theirs["params"]})
        groups[-1]["betas"] = (theirs["beta1"], theirs["beta2"])
        start = 0
        for index, param in zip(theirs["params"], ours["params"], strict=True):
            part = slice(start, start + param.numel())
            state[index] = {"step": _steps_until_debiased(theirs["beta1"])}
            state[index] |= {name: tensor[part].view(param.shape) for name, tensor in flat.items()}
            start = part.stop
    return {"state": state, "param_groups": groups}


def _steps_until_debiased(beta1: float) -> int:
    step = 1
    while beta1**step > torch.finfo(torch.float32).eps:
        step *= 2
    return step
