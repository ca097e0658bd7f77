"""Read mean and scale out of an optimizer's state. No optimizer of this package is imported: the state is enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from varlearn.core.dtypes import state_dtype
from varlearn.core.shards import reshard
from varlearn.posterior.binding import model_tensors
from varlearn.posterior.origin import Curvature, Origin
from varlearn.types import Params


def read_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, ess: float | None = None, weight_decay: float | None = None
) -> dict[str, Any]:
    """The arguments of `DiagGaussian` that an optimizer's state stands for; all tensors are copies.

    Args:
        model: gives the names.
        optimizer: with "ess" in its groups and "hess" in its state (IVON), or Adam, AdamW, SGD.
        ess: N for Adam, AdamW and SGD.
        weight_decay: delta in place of the groups', for Adam, AdamW and SGD.

    Returns:
        mean, hess, ess, weight_decay, prior_mean, fixed, tied and origin.

    >>> net = nn.Linear(1, 1, bias=False)
    >>> read_optimizer(net, torch.optim.SGD(net.parameters(), lr=0.1), ess=4.0)["hess"]
    {'weight': tensor([[1.]])}
    """
    if getattr(optimizer, "is_sampled", False):
        raise ValueError(
            "the weights are a sample now (is_sampled=True), and the posterior needs the mean; "
            "leave the sampled_params block, or call optimizer.eval(), first"
        )
    learns = all("ess" in group for group in optimizer.param_groups)
    _check_arguments(optimizer, learns, ess, weight_decay)
    reshard(model)  # FSDP2 shows other tensors while weights are gathered
    params, buffers, tied = model_tensors(model)
    names = {id(parameter): name for name, parameter in params.items()}
    out: dict[str, Any] = {"mean": {}, "hess": {}, "ess": {}, "weight_decay": {}, "prior_mean": {}}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names.get(id(parameter))
            if name is None:
                raise ValueError(
                    f"the optimizer holds a parameter of shape {tuple(parameter.shape)} that is not in the model; "
                    "pass the model whose parameters the optimizer was made with"
                )
            if not parameter.requires_grad:
                continue
            state = optimizer.state.get(parameter, {})
            out["mean"][name] = _mean(parameter, state)
            if learns:
                terms = _learned(optimizer, parameter, state, group)
            else:
                decay = group["weight_decay"] if weight_decay is None else weight_decay
                assert ess is not None
                terms = _hess(parameter, state, group), ess, decay
            out["hess"][name], out["ess"][name], out["weight_decay"][name] = terms[0], float(terms[1]), float(terms[2])
            if (prior_mean := _prior_mean(out["mean"][name], state, group)) is not None:
                out["prior_mean"][name] = prior_mean
    if hasattr(optimizer, "lr_history"):
        steps = [int(state["step"]) for state in optimizer.state.values() if "step" in state]
        optimizer.lr_history.warn(optimizer.param_groups, max(steps, default=0))  # type: ignore[attr-defined]
    out["fixed"] = _fixed(params, buffers, out["mean"])
    out["origin"] = _origin(optimizer, learns)
    out["tied"] = {alias: name for alias, name in tied.items() if name in out["mean"] or name in out["fixed"]}
    return out


def _check_arguments(
    optimizer: torch.optim.Optimizer, learns: bool, ess: float | None, weight_decay: float | None
) -> None:
    kind = type(optimizer).__name__
    if learns:
        if ess is not None or weight_decay is not None:
            raise ValueError(
                f"ess={ess} and weight_decay={weight_decay} are in the groups of {kind} and must be left out; "
                "use posterior.tempered(T) for another width"
            )
    elif not isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)):
        raise TypeError(f"no variance is known for {kind}; use IVON, AdamW, Adam or SGD")
    elif ess is None:
        raise ValueError(f"ess=None, but {kind} does not know it; pass ess=number of training examples")


def _mean(parameter: Tensor, state: Mapping[str, Any]) -> Tensor:
    """m as a copy in float32 or float64: the finer mean of a half-precision parameter where it rounds to it."""
    rounded = parameter.detach().to(state_dtype(parameter), copy=True)
    if "mean" not in state:
        return rounded
    return torch.where(state["mean"].to(parameter.dtype) == parameter.detach(), state["mean"], rounded)


def _learned(
    optimizer: Any, parameter: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]
) -> tuple[Tensor, float, float]:
    """(h, lambda, delta) of a variational optimizer, or of one that only has IVON's state."""
    if hasattr(optimizer, "posterior_terms"):
        hess, *scale = optimizer.posterior_terms(parameter)
    else:
        hess, scale = state["hess"], (group["ess"], group["weight_decay"])
    return hess.detach().clone(), *scale


def _hess(parameter: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]) -> Tensor:
    """h: sqrt(v) of AdamW, 1 for SGD; float32, or float64 for a float64 parameter."""
    dtype = state_dtype(parameter)
    if "betas" in group:
        if "exp_avg_sq" not in state:
            return torch.zeros_like(parameter, dtype=dtype)
        debias = 1.0 - float(group["betas"][1]) ** float(state["step"])
        return state["exp_avg_sq"].detach().to(dtype).div(debias).sqrt_()
    return torch.ones_like(parameter, dtype=dtype)


def _prior_mean(mean: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]) -> Tensor | None:
    """m0: the state's own, or what the group says about it; None is zero."""
    if "prior_mean" in state:
        return state["prior_mean"].detach().clone()
    value = group.get("prior_mean")
    if value == "init":  # not yet sampled, so this is where training starts
        return mean.clone()
    return None if value is None else torch.full_like(mean, float(value))


def _origin(optimizer: torch.optim.Optimizer, learns: bool) -> Origin:
    """The optimizer's name, what its h is, and the sizes that it knows."""
    group: Mapping[str, Any] = optimizer.param_groups[0]
    sizes = {name: group[name] for name in ("n", "batch_size") if name in group}
    if learns:
        usual = "squared_gradient" if sizes else "ivon"
        curvature: Curvature | None = getattr(optimizer, "curvature_kind", usual)
    else:
        curvature = "sqrt_v" if "betas" in group else "constant"
    return Origin(method=type(optimizer).__name__.lower(), curvature=curvature, **sizes)


def _fixed(params: Mapping[str, Tensor], buffers: Mapping[str, Tensor], random: Params) -> Params:
    rest = {**{name: value for name, value in params.items() if name not in random}, **buffers}
    return {name: value.detach().clone() for name, value in rest.items()}
