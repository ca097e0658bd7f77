"""What people and an exact posterior say about CIFAR-10: CIFAR-10H, CIFAR-10N, and HMC's predictions.

Prepared forms: `cifar10/human_labels.npz` and `hmc/cifar10_hmc_probs.npz`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from varlearn.data import prepared, sources
from varlearn.data.errors import CorruptDataError

_HUMAN, _HMC = "cifar10/human_labels.npz", "hmc/cifar10_hmc_probs.npz"


def human_counts(root: Path | None = None) -> Tensor:
    """How many people chose each class for each test image (CIFAR-10H; Peterson et al., 2019): int64 (10000, 10)."""
    return _array(_HUMAN, "cifar10h_counts", (10_000, 10), root).long()


def noisy_labels(which: Literal["aggre", "worse", "random1", "random2", "random3"], root: Path | None = None) -> Tensor:
    """Labels that people gave the training images, some of them wrong (CIFAR-10N; Wei et al., 2022): int64 (50000,).

    Args:
        which: "aggre" for the majority of three, "worse" for a wrong one where there is one, "random1" .. "random3" for
            each person's.
        root: see `sources.folders`.
    """
    return _array(_HUMAN, f"cifar10n_{which}", (50_000,), root).long()


def hmc_probabilities(root: Path | None = None) -> Tensor:
    """Predictions of Hamiltonian Monte Carlo for the test images (Izmailov et al., 2021): float32 (10000, 10).

    They are in the order of the test split, and belong to `varlearn.models.resnet20_swish`.
    """
    return _array(_HMC, "probs", (10_000, 10), root)


def _array(path: str, name: str, shape: tuple[int, ...], root: Path | None) -> Tensor:
    found = sources.find(path, root)
    if found is None:
        raise sources.missing(path, root, "set VARLEARN_DATA to a folder that holds it")
    content = prepared.arrays(found)
    if name not in content:
        raise CorruptDataError(f"{found} has no {name!r}; it has {', '.join(sorted(content))}")
    if content[name].shape != shape:
        raise CorruptDataError(
            f"{found} has {name} of shape {content[name].shape}, not {shape}; put the original there"
        )
    return torch.from_numpy(content[name])
