"""What happens to each tensor when files are merged, settled and checked before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch

from varlearn.core.tensor_bytes import raw_bytes
from varlearn.merging.merge_checks import check_base_hess, check_numbers
from varlearn.merging.stored_model import GRAMS, StoredModel
from varlearn.merging.tensor_merge import CURVED, PIECE, MergeSettings

_BUFFERS = ("*running_mean", "*running_var", "*num_batches_tracked", "*position_ids", "*inv_freq", "*masked_bias")


class Step(NamedTuple):
    """One tensor of the result.

    Attributes:
        name: of the tensor.
        shape: of the tensor.
        dtype: in the result.
        merged: whether it is merged; otherwise it is the base's.
        reason: why it is kept.
    """

    name: str
    shape: torch.Size
    dtype: torch.dtype
    merged: bool
    reason: str = ""

    @property
    def size(self) -> int:
        """Bytes in the result."""
        return self.shape.numel() * self.dtype.itemsize


@dataclass(frozen=True)
class MergePlan:
    """Everything that the merge of files needs.

    Attributes:
        base: theta_0.
        models: theta_t.
        settings: the rule.
        steps: by name, in order.
        base_hess: h_0, if it is a number.
        skip: patterns of names that are kept as they are in the base.
    """

    base: StoredModel
    models: Sequence[StoredModel]
    settings: MergeSettings
    steps: Sequence[Step]
    base_hess: float | None = None
    skip: Sequence[str] = ()


def merge_plan(
    base: StoredModel,
    models: Sequence[StoredModel],
    settings: MergeSettings,
    *,
    dtype: torch.dtype | None = None,
    base_hess: float | None = None,
    skip: Sequence[str] = (),
) -> MergePlan:
    """Decide for each tensor, and refuse models that do not fit together.

    Args:
        base: theta_0.
        models: theta_t.
        settings: the rule.
        dtype: of floats in the result; None keeps the base's, and then all models must have it.
        base_hess: h_0 as a number for the sum of the losses. None takes that of the base's files, or 0.
        skip: patterns such as "classifier.*": these tensors are kept from the base, whatever the models have.
    """
    check_numbers(settings)
    if base_hess is not None:
        check_base_hess(base_hess)
    names = sorted(base.tensors.names)
    if not names:
        raise ValueError(f"{base.path} has no tensor; give the weights that all models were finetuned from")
    for model in models:
        _check_names(base, model, skip)
    _check_base_hash(base, models)
    curved = settings.method in CURVED
    if curved:
        for model in models:
            model.units()
            assert model.hess is not None
            if not any(name in model.hess for name in names):
                raise ValueError(f"{model.posterior} has no tensor of {base.path}; give the curvature of this model")
    if settings.method == "regmean":
        _check_grams(base, models)
    steps = [_step(name, base, models, curved, dtype, skip) for name in names]
    if not any(step.merged for step in steps):
        raise ValueError(f"no tensor of {base.path} would be merged; check --skip and the files of the curvature")
    return MergePlan(base, models, settings, steps, base_hess, skip)


def _step(
    name: str,
    base: StoredModel,
    models: Sequence[StoredModel],
    curved: bool,
    dtype: torch.dtype | None,
    skip: Sequence[str],
) -> Step:
    have, shape, _ = base.tensors.entry(name)
    out = dtype if dtype is not None and have.is_floating_point else have
    if _skipped(name, skip):
        return Step(name, shape, out, False, "skipped")
    for model in models:
        _check_entry(name, base, model, dtype)
    if not have.is_floating_point:
        return Step(name, shape, have, False, f"{str(have).removeprefix('torch.')} is not merged")
    if any(fnmatchcase(name, pattern) for pattern in _BUFFERS):
        return Step(name, shape, out, False, "a buffer")
    if curved:
        lacking = [model for model in models if model.hess is None or name not in model.hess]
        if lacking and all(name in model.fixed or model.hess is None or name not in model.hess for model in models):
            return Step(name, shape, out, False, "not trained: no model has its curvature")
        if lacking:
            raise ValueError(
                f"{lacking[0].posterior} has no curvature of {name!r}, and others have; train the same weights in all "
                f"models, or keep the base's with --skip {name!r}"
            )
        for model in models:
            assert model.hess is not None
            if (got := model.hess.entry(name).shape) != shape:
                raise ValueError(
                    f"{model.posterior}: the curvature of {name!r} has shape {tuple(got)}, and the weight "
                    f"{tuple(shape)}; give the curvature of this model"
                )
    return Step(name, shape, out, True)


def _check_names(base: StoredModel, model: StoredModel, skip: Sequence[str]) -> None:
    missing = [name for name in base.tensors.names if name not in model.tensors and not _skipped(name, skip)]
    extra = [name for name in model.tensors.names if name not in base.tensors and not _skipped(name, skip)]
    if missing or extra:
        both = [f"{what} {_some(names)}" for what, names in (("lacks", missing), ("also has", extra)) if names]
        raise ValueError(
            f"{model.path} {' and '.join(both)}, unlike {base.path}; merge models of one architecture, or keep "
            f"the base's with --skip {(missing or extra)[0]!r}"
        )


def _check_entry(name: str, base: StoredModel, model: StoredModel, dtype: torch.dtype | None) -> None:
    (have, shape, _), (found, other, _) = base.tensors.entry(name), model.tensors.entry(name)
    if shape != other:
        rows = len(shape) == len(other) == 2 and shape[1:] == other[1:]
        cure = (
            "of two vocabularies, give all models the same before finetuning, with model.resize_token_embeddings(n)"
            if rows
            else "merge models of one architecture"
        )
        raise ValueError(
            f"{model.path}: {name!r} has shape {tuple(other)}, and in {base.path} {tuple(shape)}; {cure}, or keep the "
            f"base's with --skip {name!r}"
        )
    if any(one.is_floating_point and one.itemsize == 1 for one in (have, found)):
        raise ValueError(
            f"{model.path if have.itemsize > 1 else base.path}: {name!r} is quantized to 8 bits, which cannot be "
            "merged; give the weights before quantization"
        )
    kinds = have.is_floating_point, found.is_floating_point
    if kinds[0] != kinds[1] or (have != found and dtype is None):
        short = [str(one).removeprefix("torch.") for one in (found, have)]
        raise ValueError(
            f"{model.path}: {name!r} is {short[0]}, and in {base.path} {short[1]}; say what the result is to be, "
            "e.g. --dtype bfloat16"
        )


def _check_grams(base: StoredModel, models: Sequence[StoredModel]) -> None:
    cure = "save varlearn.merging.input_grams(model, loader) of this model there with safetensors.torch.save_file"
    first: set[str] | None = None
    for model in models:
        if model.grams is None:
            raise ValueError(f"{model.path} has no {GRAMS}, which regmean needs; {cure}")
        names, file = model.grams.names, model.path / GRAMS
        for name in sorted(names):
            if name not in base.tensors:
                raise ValueError(f"{file}: {name!r} is no tensor of {base.path}; {cure}")
            shape, found = tuple(base.tensors.entry(name).shape), tuple(model.grams.entry(name).shape)
            if len(shape) != 2 or found != shape[1:] * 2:
                raise ValueError(
                    f"{file}: {name!r} has shape {found}, which is not that of X^T X for a weight of shape {shape}; "
                    f"{cure}"
                )
        if first is not None and names != first:
            odd = _some(sorted(names ^ first))
            raise ValueError(f"{file} and {models[0].path / GRAMS} differ in {odd}; {cure}")
        first = names


def _check_base_hash(base: StoredModel, models: Sequence[StoredModel]) -> None:
    recorded = {model.origin.base_sha256: model for model in models if model.origin.base_sha256 is not None}
    if not recorded:
        return
    found = stored_sha256(base)
    for wanted, model in recorded.items():
        if wanted != found:
            raise ValueError(
                f"{model.path} was finetuned from weights with SHA-256 {wanted}, and {base.path} has {found}; give the "
                "base that it was finetuned from"
            )


def stored_sha256(model: StoredModel) -> str:
    """`varlearn.posterior.weights_sha256` of a model in files, without loading it."""
    digest = hashlib.sha256()
    for name in sorted(model.tensors.names):
        dtype, shape, _ = model.tensors.entry(name)
        digest.update(f"{name} {str(dtype).removeprefix('torch.')} {tuple(shape)}\n".encode())
        for start in range(0, shape.numel(), PIECE):
            digest.update(raw_bytes(model.tensors.read(name, start, start + PIECE)))
    return digest.hexdigest()


def _skipped(name: str, skip: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in skip)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, sorted(names)[:5]))
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
