"""Between a posterior's names and a model's tensors: what is random, what is fixed, what is tied, and does it fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from varlearn.types import Params, Posterior


class ModelTensors(NamedTuple):
    """The tensors of a model under the names a posterior uses."""

    params: dict[str, nn.Parameter]
    """Parameters, each once, under the first of its names."""
    buffers: dict[str, Tensor]
    """Buffers that belong to the state dict, each once."""
    tied: dict[str, str]
    """Every further name of a tensor, with its first name."""


def unwrap(model: nn.Module) -> nn.Module:
    """The module whose names count: inside `torch.compile`, `DataParallel` and `DistributedDataParallel`.

    >>> inner = nn.Linear(1, 1)
    >>> unwrap(nn.DataParallel(inner)) is inner
    True
    """
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def model_tensors(model: nn.Module) -> ModelTensors:
    """Name the parameters and persistent buffers of a model, each tensor once.

    >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2, affine=False))
    >>> net[1].weight = net[0].weight
    >>> params, buffers, tied = model_tensors(net)
    >>> list(params), sorted(buffers), tied
    (['0.weight'], ['2.num_batches_tracked', '2.running_mean', '2.running_var'], {'1.weight': '0.weight'})
    """
    model = unwrap(model)
    params: dict[str, nn.Parameter] = {}
    buffers: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) == name:
            params[name] = parameter
        else:
            tied[name] = first[id(parameter)]
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
            full = f"{prefix}.{name}" if prefix else name
            if name in module._non_persistent_buffers_set:
                continue
            if first.setdefault(id(buffer), full) == full:
                buffers[full] = buffer
            else:
                tied[full] = first[id(buffer)]
    return ModelTensors(params, buffers, tied)


def check_fits(posterior: Posterior, model: nn.Module) -> None:
    """Refuse a posterior whose tensors are not those of the model, naming the tensors at fault.

    A posterior that carries `fixed` tensors must name every parameter and persistent buffer of the model; one whose
    `fixed` is None must name every parameter that requires a gradient, and the model keeps its own values for the rest.

    Raises:
        ValueError: with the names that are missing, unexpected, or of another shape.

    >>> from varlearn.posterior import Point
    >>> check_fits(Point({"weight": torch.zeros(1, 3)}), nn.Linear(2, 1))
    Traceback (most recent call last):
    ...
    ValueError: the posterior does not fit the model: missing 'bias'; wrong shape: 'weight' is (1, 3) in the posterior \
and (1, 2) in the model; use the architecture that the posterior was trained with
    """
    faults = _faults(posterior, model_tensors(model))
    if faults:
        raise ValueError(
            f"the posterior does not fit the model: {'; '.join(faults)}; "
            "use the architecture that the posterior was trained with"
        )


def _faults(posterior: Posterior, tensors: ModelTensors) -> list[str]:
    there: dict[str, Tensor] = {**tensors.params, **tensors.buffers}
    here = {**(posterior.fixed or {}), **posterior.mean}
    if posterior.fixed is None:
        needed = [name for name, parameter in tensors.params.items() if parameter.requires_grad]
    else:
        needed = list(there)
    missing = [name for name in needed if name not in here]
    unexpected = [name for name in here if name not in there]
    misshapen = [
        f"{name!r} is {tuple(here[name].shape)} in the posterior and {tuple(there[name].shape)} in the model"
        for name in here
        if name in there and here[name].shape != there[name].shape
    ]
    return (
        ([f"missing {_listed(missing)}"] if missing else [])
        + ([f"unexpected {_listed(unexpected)}"] if unexpected else [])
        + ([f"wrong shape: {', '.join(misshapen)}"] if misshapen else [])
    )


def _listed(names: list[str], most: int = 8) -> str:
    """At most `most` names, then how many more."""
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


@torch.no_grad()
def write_into(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Copy values into the model's tensors in place, so that identity, memory format and tied weights stay.

    >>> net = nn.Linear(1, 1)
    >>> write_into(net, {"weight": torch.full((1, 1), 3.0)})
    >>> net.weight.item()
    3.0
    """
    tensors = model_tensors(model)
    for name, value in values.items():
        target = tensors.params[name] if name in tensors.params else tensors.buffers[name]
        target.copy_(value)


def full_state(params: Mapping[str, Tensor], fixed: Mapping[str, Tensor] | None, tied: Mapping[str, str]) -> Params:
    """Weights, fixed tensors and the further names of tied ones: what `model.load_state_dict` takes.

    >>> sorted(full_state({"a": torch.zeros(1)}, None, {"b": "a"}))
    ['a', 'b']
    """
    state = {**(fixed or {}), **params}
    return state | {alias: state[name] for alias, name in tied.items() if name in state}
