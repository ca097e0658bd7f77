"""Which data train the network, which ones calibrate it, and what the first batch tells about both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from varlearn.fitting.array_inputs import weights_dtype
from varlearn.fitting.first_look import Look, first_outputs, look
from varlearn.fitting.own_batches import OwnBatches, check_rereadable
from varlearn.fitting.target_units import TargetUnits, measure_units
from varlearn.fitting.task_predictor import Source
from varlearn.fitting.validation_fold import hold_out_fold
from varlearn.prediction.loader_batches import Unpack, check_repeatable


@dataclass(frozen=True)
class Arrangement:
    """The data of a fit.

    Attributes:
        train: batches to learn from.
        held_out: batches for temperature and noise; None where there are none.
        source: what errors come from that the noise of a regression is estimated from.
        look: task, classes and counts.
        units: of the targets of a regression; None for the network's own.
    """

    train: OwnBatches
    held_out: OwnBatches | None
    source: Source
    look: Look
    units: TargetUnits | None


def arrange(
    model: nn.Module,
    train_loader: Iterable[Any],
    val_loader: Iterable[Any] | None,
    *,
    task: str | None,
    seed: int,
    unpack: Unpack | None,
    standardize: bool,
) -> Arrangement:
    """Look at the data, and hold out a tenth of a regression's training data where there are no validation data.

    Args:
        model: left as it was.
        train_loader: as for `fit`.
        val_loader: as for `fit`.
        task: as for `fit`.
        seed: of the order, and of the examples that are held out.
        unpack: as for `fit`.
        standardize: whether a regression learns standardized targets.
    """
    dtype = weights_dtype(model)
    train = OwnBatches(train_loader, "train_loader", seed=seed, unpack=unpack, dtype=dtype)
    found = look(model, train, task)
    held_out, source = val_loader, "validation data"
    if val_loader is not None:
        _check_validation(val_loader)
    elif found.task == "regression":
        fold = hold_out_fold(train_loader, seed, dtype)
        source = "leave-one-out errors" if fold is None else "a held-out tenth of the training data"
        if fold is not None:
            train, held_out = train.over(fold[0]), fold[1]
            found = look(model, train, "regression")
    train.targets = found.checked
    held = None
    units = measure_units(train) if found.task == "regression" and standardize else None
    if held_out is not None:
        name = "val_loader" if val_loader is not None else "the held-out tenth of train_loader"
        held = OwnBatches(held_out, name, unpack=unpack, dtype=dtype, targets=found.checked)
        for number, (inputs, _) in enumerate(held):  # a fault that shows after training would lose the training
            first_outputs(model, inputs, f"batch {number} of {name}")
    return Arrangement(train, held, source, found, units)


def _check_validation(loader: Iterable[Any]) -> None:
    check_rereadable(loader, "val_loader")
    try:
        check_repeatable(loader, passes=2)
    except ValueError as error:
        raise ValueError(f"val_loader: {error}") from None
