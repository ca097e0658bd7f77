"""A LoRA adapter in files, seen as the model that it makes of its base: W_0 + s B A, and the variance of s B A."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from varlearn.files.sealed import KEY
from varlearn.files.tensor_file import Entry, TensorFile
from varlearn.merging.curvature_rules import FLOOR
from varlearn.merging.curvature_units import Units, units_of
from varlearn.merging.lora_product import product_curvature, product_delta
from varlearn.merging.stored_model import POSTERIOR, StoredModel, StoredTensors, finite
from varlearn.posterior import Origin
from varlearn.posterior.posterior_file import read_header

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_REFUSED = {
    "use_rslora": "rank-stabilized LoRA, whose factor is alpha / sqrt(r)",
    "use_dora": "DoRA, whose norm is no part of B A",
    "lora_bias": "trained biases",
    "fan_in_fan_out": "transposed weights",
}
"""Settings of PEFT under which a product B A with the factor alpha / r is not what the adapter adds."""


_VARIANTS = (
    "use_qalora",
    "use_bdlora",
    "alora_invocation_tokens",
    "layer_replication",
    "trainable_token_indices",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
)
"""Other settings under which the adapter does not add B A to the weights that it names."""
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Initializations that subtract the first B A from the base, so that s B A belongs to other base weights."""


def is_adapter(path: Path) -> bool:
    """Whether a folder holds a LoRA adapter."""
    return (path / CONFIG).is_file()


def open_adapter(path: Path, base: StoredModel, units: Mapping[str, Any] | None = None) -> StoredModel | None:
    """The adapter's model; None for a folder that holds no adapter.

    Args:
        path: folder with `adapter_config.json`, `adapter_model.safetensors` and, for the
            curvature, `posterior.safetensors`.
        base: the model it was trained on.
        units: entries of `Origin` in place of those of the posterior.
    """
    if not is_adapter(path):
        return None
    config = read_config(path)
    scale = float(config["lora_alpha"]) / float(config["r"])
    if not (path / WEIGHTS).is_file():
        raise FileNotFoundError(f"{path} has no {WEIGHTS}; save the adapter again with model.save_pretrained(folder)")
    file = TensorFile(path / WEIGHTS)
    pairs = _pairs(path, file, base)
    weights = AdapterTensors(base.tensors, file, pairs, scale)
    if not (path / POSTERIOR).is_file():
        return StoredModel(path, weights)
    learned = TensorFile(path / POSTERIOR)
    learned.verify()
    origin = replace(read_header(learned.path, learned.metadata.get(KEY, "{}")).origin, **(units or {}))
    hess = AdapterCurvature(base.tensors, learned, pairs, scale, origin)
    return StoredAdapter(path, weights, learned.path, hess, origin)


class StoredAdapter(StoredModel):
    """An adapter with a posterior: its curvature is the precision of s B A, made for the sum of the losses."""

    def units(self) -> Units:
        """Nothing is left to convert; refused where the file does not say what h is."""
        units_of(str(self.posterior), self.origin)
        return Units()


def read_config(path: Path) -> dict[str, Any]:
    """The adapter's settings; those that PEFT's own merging gets wrong in silence are refused."""
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        if not (float(config["lora_alpha"]) > 0 and int(config["r"]) > 0):
            raise ValueError("lora_alpha and r must be > 0")
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ValueError(f"{path / CONFIG} is no configuration of LoRA ({error!r}); save the adapter again") from error
    if config.get("peft_type", "LORA") != "LORA":
        raise ValueError(f"{path} is an adapter of type {config['peft_type']!r}; only LORA can be merged")
    for name, what in _REFUSED.items():
        if config.get(name):
            raise ValueError(
                f"{path} has {name}=true, {what}; it must be plain LoRA: merge it into its base with "
                "model.merge_and_unload() and give that folder"
            )
    for name in _VARIANTS:
        if config.get(name):
            raise ValueError(
                f"{path} has {name}, a variant that is not W + s B A; it must be plain LoRA: merge it into its base "
                "with model.merge_and_unload() and give that folder"
            )
    start = config.get("init_lora_weights", True)
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
        raise ValueError(
            f"{path} has init_lora_weights={start!r}, which changed the base's weights at the start of training; save "
            "it with path_initial_model_for_weight_conversion, or give the folder of model.merge_and_unload()"
        )
    for name in ("rank_pattern", "alpha_pattern"):
        if config.get(name):
            raise ValueError(
                f"{path} has a {name}, other ranks or factors for some layers; train with one for all layers"
            )
    if config.get("bias", "none") != "none" or config.get("modules_to_save"):
        raise ValueError(f"{path} also trains biases or whole modules; merge it with model.merge_and_unload() first")
    return config


def _pairs(path: Path, file: TensorFile, base: StoredModel) -> dict[str, tuple[str, str]]:
    """Name of the base's weight -> names of A and B in the adapter's file."""
    found: dict[str, dict[str, str]] = {}
    for name in file.entries:
        for which in ("lora_A", "lora_B"):
            if f".{which}." in name:
                layer = name.split(f".{which}.")[0].removeprefix(_PREFIX)
                found.setdefault(f"{layer}.weight", {})[which] = name
                break
        else:
            raise ValueError(
                f"{file.path}: {name!r} is no factor of LoRA; merge it with model.merge_and_unload() first"
            )
    pairs: dict[str, tuple[str, str]] = {}
    for weight, both in found.items():
        if weight not in base.tensors:
            raise ValueError(
                f"{path} adapts {weight!r}, which {base.path} does not have; give the base it was trained on"
            )
        if len(both) != 2:
            raise ValueError(f"{file.path} has only one factor for {weight!r}; save the adapter again")
        pairs[weight] = both["lora_A"], both["lora_B"]
    if not pairs:
        raise ValueError(f"{file.path} has no factor of LoRA; give an adapter that PEFT saved")
    for weight, (a, b) in pairs.items():
        product = file.entries[b].shape[0], file.entries[a].shape[1]
        if product != tuple(base.tensors.entry(weight).shape):
            raise ValueError(
                f"{file.path}: B A for {weight!r} has shape {product}, and the base has "
                f"{tuple(base.tensors.entry(weight).shape)}; give the base it was trained on"
            )
    return pairs


class AdapterTensors(StoredTensors):
    """The base's tensors, with s B A added where the adapter has factors. The last product is kept."""

    def __init__(self, base: StoredTensors, file: TensorFile, pairs: Mapping[str, tuple[str, str]], scale: float):
        super().__init__(base._places, base.aliases)
        self._file, self._pairs, self._scale = file, pairs, scale
        self._last: tuple[str, Tensor] | None = None

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """Some entries of W_0 + s B A, in the base's dtype."""
        if name not in self._pairs:
            return super().read(name, start, stop)
        if self._last is None or self._last[0] != name:
            a, b = (_matrix(self._file, key) for key in self._pairs[name])
            whole = super().read(name).double() + product_delta(a, b, self._scale).flatten()
            self._last = name, whole.to(self.entry(name).dtype)
        return self._last[1][start:stop]

    def files(self) -> list[TensorFile]:
        """Those of the base and the adapter's."""
        return [*super().files(), self._file]


class AdapterCurvature(StoredTensors):
    """1 / variance of s B A under the adapter's posterior, for the layers that have factors."""

    def __init__(
        self,
        base: StoredTensors,
        file: TensorFile,
        pairs: Mapping[str, tuple[str, str]],
        scale: float,
        origin: Origin,
    ):
        super().__init__({name: base._places[name] for name in pairs})
        self._posterior_file, self._pairs, self._scale, self._origin = file, pairs, scale, origin
        self._last: tuple[str, Tensor] | None = None
        self._description = json.loads(file.metadata[KEY])["posterior"]
        lacking = [key for pair in pairs.values() for key in map(self._key, pair) if f"mean/{key}" not in file.entries]
        if lacking:
            raise ValueError(
                f"{file.path} has no posterior of {lacking[0]!r}; save that of the adapted model, "
                "DiagGaussian.from_optimizer(model, opt)"
            )

    def _key(self, name: str) -> str:
        """The name in the posterior of the model in memory, where PEFT adds the adapter's name."""
        entries = self._posterior_file.entries
        named = [key.removeprefix("mean/") for key in entries if key.startswith("mean/")]
        short = name.removesuffix(".weight")
        return next((key for key in named if key == name or key == f"{short}.default.weight"), name)

    def entry(self, name: str) -> Entry:
        """Float64, with the shape of the base's weight."""
        return super().entry(name)._replace(dtype=torch.float64)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """Some entries of the curvature."""
        if self._last is None or self._last[0] != name:
            (a, var_a), (b, var_b) = (self._moments(self._key(key)) for key in self._pairs[name])
            self._last = name, product_curvature(a, var_a, b, var_b, self._scale).flatten()
        return self._last[1][start:stop]

    def _moments(self, key: str) -> tuple[Tensor, Tensor]:
        """Mean and variance of a factor: 1 / variance is the curvature of the sum of the losses, and n delta."""
        mean, hess = _matrix(self._posterior_file, f"mean/{key}"), _matrix(self._posterior_file, f"hess/{key}")
        decay = self._description["weight_decay"]
        prior = float(self._origin.n or 1.0) * float(decay[key] if isinstance(decay, dict) else decay)
        curvature = units_of(str(self._posterior_file.path), self._origin).summed(hess)
        return mean, 1.0 / (curvature.clamp_min(0.0) + prior).clamp_min(FLOOR)

    def files(self) -> list[TensorFile]:
        """The posterior's."""
        return [self._posterior_file]


def _matrix(file: TensorFile, name: str) -> Tensor:
    return finite(file, name, file.read(name)).double().view(file.entries[name].shape)
