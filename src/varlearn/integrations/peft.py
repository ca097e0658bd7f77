"""Posteriors over PEFT adapters: only the adapter is random, and files use the adapter's own keys.

`adapter_model.safetensors` names a tensor "base_model.model.q.lora_A.weight" where the model, which may hold several
adapters, has "base_model.model.q.lora_A.default.weight". The posterior's file uses the former, so it fits whatever the
adapter is called when it is loaded.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from varlearn.posterior import DiagGaussian, check_fits, load, save
from varlearn.types import Params, Posterior


def is_peft_model(model: nn.Module) -> bool:
    """Whether PEFT has wrapped the model. PEFT is not imported for the question.

    >>> is_peft_model(nn.Linear(1, 1))
    False
    """
    peft = sys.modules.get("peft")
    return peft is not None and isinstance(model, peft.PeftModel)


def adapter_posterior(model: nn.Module, optimizer: torch.optim.Optimizer) -> DiagGaussian:
    """What IVON has learned about the trainable parameters, without a copy of the frozen model.

    Args:
        model: a PEFT model; names are those of its `named_parameters()`.
        optimizer: an IVON that holds its trainable parameters, with no sample in the weights.
    """
    learned = DiagGaussian.from_optimizer(model, optimizer)
    return replace(learned, fixed=None, tied={})


def save_adapter_posterior(
    posterior: Posterior, model: nn.Module, path: str | os.PathLike[str], adapter: str = "default"
) -> None:
    """Write a posterior under the keys of `adapter_model.safetensors`.

    Args:
        posterior: a `DiagGaussian` over the trainable parameters of `model`, in the model's names.
        model: the PEFT model.
        path: by custom "posterior.safetensors" beside the adapter.
        adapter: its name in the model.
    """
    keys = _keys(model, adapter)
    unknown = [name for name in posterior.mean if name not in keys]
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} is random but not saved with adapter {adapter!r}, so it could not be loaded again; "
            "name its module in modules_to_save of the PEFT config, or freeze it"
        )
    save(_renamed(posterior, keys), path)


def load_adapter_posterior(
    path: str | os.PathLike[str], model: nn.Module, adapter: str = "default", device: torch.device | str = "cpu"
) -> DiagGaussian:
    """Read a posterior of an adapter back, in the names of a model that has the adapter.

    Args:
        path: of a file that `save_adapter_posterior` wrote.
        model: a PEFT model with an adapter of the same configuration; its weights do not matter.
        adapter: its name in this model.
        device: where the tensors go.
    """
    posterior = load(path, device=device)
    if not isinstance(posterior, DiagGaussian):
        raise ValueError(f"{path} holds a {type(posterior).__name__}, not the DiagGaussian of an adapter")
    names = {key: name for name, key in _keys(model, adapter).items()}
    foreign = [key for key in posterior.mean if key not in names]
    if foreign:
        raise ValueError(
            f"the posterior has {foreign[0]!r}, which adapter {adapter!r} of the model has not; "
            "make the model with the PEFT config that the adapter was trained with"
        )
    renamed = _renamed(posterior, names)
    check_fits(renamed, model)
    return renamed


def _keys(model: nn.Module, adapter: str) -> dict[str, str]:
    """Name of a parameter in the model -> its key in the adapter's file, found by identity of the memory."""
    from peft import get_peft_model_state_dict

    saved = get_peft_model_state_dict(model, adapter_name=adapter, save_embedding_layers=False)
    keys = {(tensor.data_ptr(), tensor.shape): key for key, tensor in saved.items()}
    parameters = ((name, (value.data_ptr(), value.shape)) for name, value in model.named_parameters())
    return {name: keys[where] for name, where in parameters if where in keys}


def _renamed(posterior: Any, names: dict[str, str]) -> Any:
    def rename(values: Params) -> Params:
        return {names[name]: value for name, value in values.items()}

    return replace(
        posterior,
        mean=rename(posterior.mean),
        hess=rename(posterior.hess),
        ess=rename(posterior.ess),
        weight_decay=rename(posterior.weight_decay),
        prior_mean=rename(posterior.prior_mean),
    )
