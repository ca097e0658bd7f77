"""mergekit's merge method `varlearn_hessian`: curvature from posterior files beside the models.

mergekit has no list of plug-ins, so the method is registered by the process that merges::

    python -m varlearn.integrations.mergekit config.yml OUT

with `mergekit-yaml`'s own arguments, or `varlearn.integrations.mergekit.register()` before `mergekit.merge.run_merge`.
In the configuration::

    merge_method: varlearn_hessian
    base_model: models/base
    models:
      - model: models/a
        parameters: {weight: 1.0}
      - model: models/c
    parameters: {alpha: 1.0}
    dtype: float32

Each model is a local folder with `posterior.safetensors` (`varlearn.posterior.save`). mergekit reads the weights, gives
them to the method tensor by tensor, and writes the result; layers may be sliced, as long as tensors keep their names.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from varlearn.merging.merge_checks import check_base_hess, check_finite_merge, check_numbers, checked_weights
from varlearn.merging.stored_model import StoredModel, open_model
from varlearn.merging.tensor_merge import MergeSettings, Reader, TensorInputs, merged_pieces

NAME = "varlearn_hessian"


def register() -> Any:
    """Make `merge_method: varlearn_hessian` known to mergekit, once; return the method."""
    from mergekit.merge_methods import registry
    from mergekit.merge_methods.base import BasePolicy, InputContract, PerNonBase, TensorGroup
    from mergekit.merge_methods.easy_define import merge_method

    known = [method for method in registry.registered_methods() if method.spec.name == NAME]
    if known:
        return known[0]

    def kernel(group: Any, weight: Any = 1.0, alpha: float = 1.0, base_hess: float = 0.0) -> Tensor:
        models = [(entry.id, entry.tensor) for entry in group.non_base]
        weights = {entry.id: weight[entry.id] for entry in group.non_base}
        return merged_group(group.metadata.name, group.base.tensor, models, weights, alpha, base_hess)

    # mergekit reads the parameters off the annotations.
    kernel.__annotations__ = {
        "group": TensorGroup, "weight": PerNonBase[float], "alpha": float, "base_hess": float, "return": Tensor
    }  # fmt: skip
    method: Any = merge_method(
        kernel,
        name=NAME,
        pretty_name="Hessian-weighted merging (varlearn)",
        reference_url="https://arxiv.org/abs/2402.17641",
        contract=InputContract(base=BasePolicy.REQUIRED, min_non_base=1),
    )
    registry.register(method)
    return method


def merged_group(
    name: str | None,
    base: Tensor,
    models: list[tuple[Any, Tensor]],
    weights: Mapping[Any, float],
    alpha: float,
    base_hess: float,
) -> Tensor:
    """One tensor, merged by the paper's formula; the base's own where no model has its curvature.

    Args:
        name: of the tensor, as in the posterior files.
        base: theta_0.
        models: mergekit's reference of each model, and theta_t.
        weights: w_t by reference.
        alpha: one factor for all models.
        base_hess: h_0 as a number for the sum of the losses.
    """
    if not base.is_floating_point() or not models:
        return base
    if name is None:
        raise ValueError(f"{NAME} needs the name of each tensor, to find its curvature; use another merge method here")
    settings = MergeSettings("hessian", checked_weights([weights[one] for one, _ in models], len(models)), alpha)
    check_numbers(settings)
    check_base_hess(base_hess)
    stored = [_stored(_folder(reference)) for reference, _ in models]
    curved = [model.hess is not None and name in model.hess for model in stored]
    if not any(curved):
        for model in stored:
            model.units()
        return base
    if not all(curved):
        lacking = stored[curved.index(False)]
        raise ValueError(f"{lacking.path} has no curvature of {name!r}, and others have; train the same weights in all")
    for (_, tensor), model in zip(models, stored, strict=True):
        assert model.hess is not None
        wanted = model.hess.entry(name).shape
        if not base.shape == tensor.shape == wanted:
            raise ValueError(
                f"{model.path}: {name!r} has shape {tuple(tensor.shape)}, the base {tuple(base.shape)} and the "
                f"curvature {tuple(wanted)}; they must be the same, as with one vocabulary"
            )
    inputs = TensorInputs(
        base.shape,
        0,
        _flat(base),
        [_flat(tensor) for _, tensor in models],
        [(_curvature(model, name), model.units()) for model in stored],
        float(base_hess),
    )
    merged = torch.cat(list(merged_pieces(settings, inputs))).view(base.shape)
    check_finite_merge(name, merged, alpha)
    return merged


def _flat(tensor: Tensor) -> Reader:
    whole = tensor.reshape(-1)
    return lambda start, stop: whole[start:stop]


def _curvature(model: StoredModel, name: str) -> Reader:
    hess = model.hess
    assert hess is not None
    return lambda start, stop: hess.read(name, start, stop)


def _folder(reference: Any) -> Path:
    path = Path(str(reference.model.path))
    if not path.is_dir():
        raise ValueError(
            f"{path} is no local folder; {NAME} reads posterior.safetensors in it, download the model first"
        )
    return path


@lru_cache(maxsize=32)
def _stored(path: Path) -> StoredModel:
    return open_model(path)


def main() -> None:
    """`mergekit-yaml` with the method registered."""
    register()
    from mergekit.scripts.run_yaml import main as run

    run()


if __name__ == "__main__":
    sys.exit(main())
