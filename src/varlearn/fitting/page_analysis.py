"""What the page of a fit shows besides scores: `analysis.json` of a run folder, made of data of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from varlearn.fitting.array_inputs import weights_dtype
from varlearn.fitting.task_predictor import TaskPredictor
from varlearn.posterior import Point, layer_scales
from varlearn.prediction import temperature_curve
from varlearn.prediction.extremes import most_uncertain, worst
from varlearn.prediction.loader_batches import Unpack
from varlearn.prediction.predictions_file import AnyPredictions
from varlearn.train.analysis import SAMPLES, image_content


def page_analysis(
    model: nn.Module,
    posterior: Any,
    predictor: TaskPredictor,
    loader: Iterable[Any],
    averaged: AnyPredictions,
    seed: int,
) -> dict[str, Any]:
    """Widths of the layers, NLL against the temperature, and the most uncertain and the worst examples.

    Args:
        model: the network.
        posterior: over its weights.
        predictor: predicts with it.
        loader: test data with targets; gives the same batches in every pass.
        averaged: its predictions of them.
        seed: of the samples.
    """
    inputs = _inputs(
        partial(predictor.pair, dtype=weights_dtype(model)),
        loader,
        list(dict.fromkeys([*most_uncertain(averaged), *worst(averaged)])),
    )
    shown = [{"index": number, **content} for number, one in inputs.items() if (content := _content(one))]
    values: dict[str, Any] = {"examples": {"kind": "own", "classes": [], "sets": {"test": shown}}}
    if isinstance(posterior, Point):
        return values
    values["layers"] = [layer._asdict() for layer in layer_scales(posterior)]
    known = getattr(averaged, "log_density", averaged.targets) is not None
    points = temperature_curve(model, posterior, loader, SAMPLES, seed, by=predictor) if known else []
    if points:
        count = len(averaged.targets) if averaged.targets is not None else 0
        values["temperature"] = {"split": "test", "examples": count, "samples": SAMPLES, "points": points}
    return values


def _inputs(unpack: Unpack, loader: Iterable[Any], numbers: list[int]) -> dict[int, Tensor]:
    """Inputs of single examples, where a batch has them as one tensor."""
    found, first = {}, 0
    for batch in loader:
        inputs, _ = unpack(batch)
        if not isinstance(inputs, Tensor):
            return {}
        found |= {number: inputs[number - first] for number in numbers if first <= number < first + len(inputs)}
        first += len(inputs)
    return found


def _content(one: Tensor) -> dict[str, Any]:
    """A row of a table, or an image with its darkest value black and its brightest white; nothing of other inputs."""
    if not one.is_floating_point() and one.dtype != torch.uint8:
        return {}
    values = one.detach().cpu().float()
    if values.dim() == 1:
        return {"row": [round(value, 4) for value in values.tolist()]}
    if values.dim() == 3 and len(values) in (1, 3):
        low, high = values.min(), values.max()
        return image_content(((values - low) / (high - low).clamp(min=1e-12) * 255).round().to(torch.uint8))
    return {}
