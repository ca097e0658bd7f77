"""The prior and the objective: lambda E_q[loss] + KL(q || p)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor
from torch.optim import Optimizer

from varlearn.core.shards import local
from varlearn.core.update import kl_divergence
from varlearn.optim.lr_history import LrHistory
from varlearn.optim.ranks.fsdp import combined
from varlearn.optim.state import like


def elbo(expected_loss: float | Tensor, kl: float | Tensor, ess: float) -> Tensor:
    """The evidence lower bound -(lambda E_q[loss] + KL(q || p)), in nats.

    Args:
        expected_loss: the mean training loss per example, averaged over samples of q.
        kl: from `IVON.kl()`.
        ess: lambda.

    >>> elbo(expected_loss=0.5, kl=3.0, ess=10.0)
    tensor(-8., dtype=torch.float64)
    """
    return -(ess * torch.as_tensor(expected_loss, dtype=torch.float64) + torch.as_tensor(kl, dtype=torch.float64))


class HasPosterior(Protocol):
    """An optimizer that knows (h, lambda, delta) of its parameters: 1 / sigma^2 = lambda (h + delta)."""

    param_groups: list[dict[str, Any]]
    state: MutableMapping[Tensor, Any]
    lr_history: LrHistory

    def posterior_terms(self, param: Tensor) -> tuple[Tensor, float, float]:
        """(h, lambda, delta) of a parameter."""
        ...


def kl(optimizer: HasPosterior) -> Tensor:
    """KL(q || p) summed over the trainable parameters of a variational optimizer."""
    params: list[Tensor] = []
    parts: list[Tensor] = []
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.requires_grad:
                hess, ess, delta = optimizer.posterior_terms(param)
                if delta == 0.0:
                    raise ValueError(
                        "weight_decay=0.0 must be > 0 for a KL: the prior is flat and the divergence infinite"
                    )
                state = optimizer.state.get(param, {})
                mean = local(state.get("mean", param.detach()))
                m0 = prior_mean(state, group, mean)
                parts.append(kl_divergence(mean, local(hess), ess, delta, m0).cpu())
                params.append(param)
    if not parts:
        return torch.zeros((), dtype=torch.float64, device="cpu")
    return combined(params, torch.stack(parts).view(-1, 1), "sum")[0]


def prior_mean(state: Mapping[str, Any], group: Mapping[str, Any], mean: Tensor | None = None) -> Tensor | float:
    """m0 of this rank's part of one parameter. Before its first sample, "init" is where the parameter is now."""
    if "prior_mean" in state:
        return local(state["prior_mean"])
    if group["prior_mean"] == "init" and mean is not None:
        return mean
    return 0.0 if group["prior_mean"] in (None, "init") else float(group["prior_mean"])


def is_given(prior_mean: object) -> TypeGuard[Sequence[Tensor] | Mapping[str, Tensor]]:
    """Whether m0 comes as tensors rather than None, a number or "init"."""
    return isinstance(prior_mean, (Sequence, Mapping)) and not isinstance(prior_mean, str)


def assign_prior_mean(
    optimizer: Optimizer, groups: Sequence[Mapping[str, Any]], given: Sequence[Tensor] | Mapping[str, Tensor]
) -> None:
    """Store m0 in the state of each parameter of `groups`, in order or by name."""
    params = [param for group in groups for param in group["params"]]
    if isinstance(given, Mapping):
        names = [name for group in groups for name in group.get("param_names", ())]
        if len(names) != len(params):
            raise ValueError("prior_mean as a dict needs named parameters; pass model.named_parameters(), or a list")
        missing, extra = set(names) - set(given), set(given) - set(names)
        if missing or extra:
            raise ValueError(
                f"prior_mean does not fit the parameters: missing {sorted(missing)}, unexpected {sorted(extra)}"
            )
        given = [given[name] for name in names]
    if len(given) != len(params):
        raise ValueError(
            f"prior_mean has {len(given)} tensors for {len(params)} parameters; pass one for each, in order"
        )
    for position, (param, tensor) in enumerate(zip(params, given, strict=True)):
        if tensor.shape != param.shape:
            raise ValueError(
                f"prior_mean[{position}] has shape {tuple(tensor.shape)}, the parameter {tuple(param.shape)}; "
                "pass one tensor for each parameter, in order"
            )
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"prior_mean[{position}] is not finite; replace its NaN and infinite entries")
    for param, tensor in zip(params, given, strict=True):
        optimizer.state[param]["prior_mean"] = like(param, tensor.detach())


def add_group(optimizer: Optimizer, add: Callable[[dict[str, Any]], None], group: dict[str, Any]) -> None:
    """Add a parameter group whose m0 may be given as tensors; a group that is refused is not added.

    Args:
        optimizer: that gets the group.
        add: adds a group with any other m0.
        group: its parameters and hyperparameters.
    """
    given = group.get("prior_mean") if isinstance(group, dict) else None
    if not is_given(given):
        add(group)
        return
    add(group | {"prior_mean": None})
    try:
        assign_prior_mean(optimizer, optimizer.param_groups[-1:], given)
    except Exception:
        optimizer.param_groups.pop()
        raise
