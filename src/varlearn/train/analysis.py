"""`analysis.json`: what the report shows besides scores, computed where model, posterior and data are at hand.

- "layers": size of the weights, sigma and h of each tensor, see `varlearn.posterior.layer_scales`.
- "temperature": NLL against the temperature of the posterior, on validation data where there are any.
- "examples": the first, the most uncertain and the worst test examples, and the first ones of other sets: images as
  PNG in base64, texts, or rows of a table.
- "facts": numbers of training examples and steps, which the preset's settings depend on.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from varlearn import data
from varlearn.data.examples import Examples
from varlearn.data.stored_images import StoredImages
from varlearn.data.tokenizers import Bytes
from varlearn.files.png import png
from varlearn.posterior import Mixture, Point, layer_scales
from varlearn.prediction import temperature_curve
from varlearn.prediction.extremes import most_uncertain, worst
from varlearn.prediction.predictions_file import AnyPredictions
from varlearn.train.build import build_batches
from varlearn.train.config import Run

FEW = 4  # examples of each set that are kept whatever the predictions
MOST = 2_000  # examples (times the context, of tokens) that the curve of temperatures is computed with
SAMPLES = 8  # posterior samples at each temperature
SIDE = 64  # pixels of the larger side of a stored image
LETTERS = 300  # of a stored text


@dataclass(frozen=True, eq=False)
class Predicted:
    """A run after its predictions.

    Attributes:
        run: its settings.
        model: the network.
        learned: the posterior.
        sets: name -> examples; "test" among them.
        predictions: "SET/KIND" -> predictions.
    """

    run: Run
    model: nn.Module
    learned: Any
    sets: Mapping[str, Examples]
    predictions: Mapping[str, AnyPredictions]


def analysis(found: Predicted, by: Any, root: Path | None = None) -> dict[str, Any]:
    """The contents of `analysis.json`.

    Args:
        found: the run.
        by: predicts as `calibrate` wants it: by(model, posterior, loader, samples, seed).
        root: where the data are.
    """
    values: dict[str, Any] = {"examples": _examples(found, root)}
    origin = getattr(found.learned, "origin", None)
    if origin is not None and origin.n is not None:
        values["facts"] = {"n": int(origin.n)}
    if isinstance(found.learned, Point):
        return values
    if isinstance(found.learned, Mixture):
        if all(isinstance(part, Point) for part in found.learned.components):
            return values
    else:
        values["layers"] = [layer._asdict() for layer in layer_scales(found.learned)]
    split = "validation" if "validation" in found.sets else "test"
    examples = found.sets[split]
    most = MOST * (found.run.data.context if examples.kind == "tokens" else 1)
    few = examples.first(min(len(examples), most))
    points = temperature_curve(
        found.model, found.learned, build_batches(found.run, few, train=False), SAMPLES, found.run.seed, by=by
    )
    if points:
        values["temperature"] = {"split": split, "examples": len(few), "samples": SAMPLES, "points": points}
    return values


def _examples(found: Predicted, root: Path | None) -> dict[str, Any]:
    test = found.sets["test"]
    shown: dict[str, list[dict[str, Any]]] = {}
    for name, examples in found.sets.items():
        chosen = list(range(min(FEW, len(examples)))) if examples.kind != "tokens" else []
        if name == "test":
            averaged = found.predictions["test/averaged"]
            chosen += [*most_uncertain(averaged), *worst(averaged)]
        kept = [(number, _content(found.run, examples, name, number, root)) for number in dict.fromkeys(chosen)]
        shown[name] = [{"index": number, **content} for number, content in kept if content]
    return {"kind": test.kind, "classes": list(test.classes), "sets": shown}


def _content(run: Run, examples: Examples, name: str, number: int, root: Path | None) -> dict[str, Any]:
    """What can be shown of an example; nothing where it has no form that people read."""
    index = torch.tensor([number])
    inputs = examples.inputs
    match examples.kind:
        case "image":
            pixels = inputs.decode(index)[0] if isinstance(inputs, StoredImages) else inputs[number]
            return image_content(pixels)
        case "table":
            assert isinstance(inputs, Tensor)
            return {"row": [round(value, 4) for value in inputs[number].tolist()]}
        case "text" if name == "test":
            texts = data.texts(run.data.name, name, root)
            second = f" | {texts.seconds[number]}" if texts.seconds else ""
            return {"text": (texts.texts[number] + second)[:LETTERS]}
        case "tokens" if run.data.tokens == "bytes":
            assert isinstance(inputs, Tensor)
            start = number * run.data.context
            return {"text": Bytes().decode(inputs[start : start + run.data.context].tolist())[:LETTERS]}
    return {}


def image_content(pixels: Tensor) -> dict[str, str]:
    """An image as PNG in base64, at most SIDE pixels wide and high; nothing for other than 1 or 3 channels.

    Args:
        pixels: uint8 (C, H, W).

    >>> list(image_content(torch.zeros(1, 8, 8, dtype=torch.uint8)))
    ['png']
    """
    return {"png": base64.b64encode(png(_small(pixels))).decode()} if len(pixels) in (1, 3) else {}


def _small(pixels: Tensor) -> Tensor:
    """At most SIDE pixels in each direction; smaller images stay as they are."""
    height, width = pixels.shape[1:]
    shrink = max(height, width) / SIDE
    if shrink <= 1:
        return pixels
    size = (max(1, round(height / shrink)), max(1, round(width / shrink)))
    return interpolate(pixels.float().unsqueeze(0), size, mode="area")[0].round().to(torch.uint8)
