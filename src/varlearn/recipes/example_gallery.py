"""The gallery of a run's most and least sensitive examples, from its `sensitivity.safetensors`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from torch import Tensor

from varlearn import train
from varlearn.report.sensitivity_gallery import GalleryExample, write_gallery
from varlearn.train.build import build_examples
from varlearn.train.config import Run
from varlearn.train.example_contents import training_contents
from varlearn.train.sensitivity_stage import RunSensitivity

By = Literal["paper", "score", "loss", "loo", "accumulated"]
MEASURES: dict[By, tuple[str, str]] = {
    "paper": ("paper_score", "The paper's measure, the sum of |V e|"),
    "score": ("score", "The sum of absolute changes of the probabilities"),
    "loss": ("loss", "The loss"),
    "loo": ("loo_loss", "The leave-one-out loss"),
    "accumulated": ("accumulated_score", "The score, mean over training"),
}


def gallery_of_run(
    run: str | Path, *, most: int = 40, by: By = "paper", only: str | None = None, out: Path | None = None
) -> tuple[Path, Path | None]:
    """Write `gallery.html` and, of images, `gallery.png`.

    Args:
        run: folder of a run whose sensitivities were computed.
        most: examples of all classes together, and as many again shared out among the classes.
        by: what decides; a key of `MEASURES`.
        only: the one class to show.
        out: folder; that of the run unless given.

    Returns:
        The paths of the page and of the picture, None where there is no picture.
    """
    folder, found = train.RunFolder(Path(run)), train.load_run_sensitivity(run)
    config = folder.read_run()
    name, measure = MEASURES[by]
    scores = found.values[name].double()
    known = scores.isfinite()  # not all examples are measured while training
    if only is not None:
        if "labels" not in found.values:
            raise ValueError(f"class {only!r} is unknown: {config.data.name} has no classes; leave it out")
        known &= found.values["labels"] == _number(only, found.about["classes"])
    places = known.nonzero()[:, 0]
    order = places[scores[places].argsort(descending=True, stable=True)]
    sections = {only: _ends(order, most)} if only is not None else _sections(found, order, most)
    rows = sorted({row for titles in sections.values() for shown in titles.values() for row in shown})
    cards = _cards(config, found, rows, scores)
    note = (
        f"{config.model.name} on {config.data.name} by {config.optim.name}, after epoch {found.about['epoch']:g}. "
        f"{measure}; each example has its label, the prediction where it differs, and this number."
    )
    return write_gallery(
        {
            heading: {title: [cards[row] for row in shown] for title, shown in titles.items()}
            for heading, titles in sections.items()
        },
        scores[places].tolist(),
        out or folder.out,
        title=f"Sensitive examples of {folder.out.resolve().name}",
        note=note,
        measure=measure,
    )


def _number(name: str, classes: list[str]) -> int:
    if name not in classes:
        some = ", ".join(classes[:20])
        raise ValueError(f"class {name!r} is unknown; the classes are {some}{', ...' if len(classes) > 20 else ''}")
    return classes.index(name)


def _ends(rows: Tensor, count: int) -> dict[str, list[int]]:
    return {"most sensitive": rows[:count].tolist(), "least sensitive": rows.flip(0)[:count].tolist()}


def _sections(found: RunSensitivity, order: Tensor, most: int) -> dict[str, dict[str, list[int]]]:
    """Heading -> title -> rows, from the order by sensitivity: all examples, then each class."""
    sections = {"All examples": _ends(order, most)}
    classes = found.about["classes"]
    if "labels" in found.values and classes:
        labels, each = found.values["labels"], math.ceil(most / len(classes))
        for number, name in enumerate(classes):
            own = order[labels[order] == number]
            if len(own):
                sections[name] = _ends(own, each)
    return sections


def _cards(config: Run, found: RunSensitivity, rows: list[int], scores: Tensor) -> dict[int, GalleryExample]:
    values, classes = found.values, found.about["classes"]
    ids = [int(values["ids"][row]) for row in rows]
    contents = training_contents(config, build_examples(config, "train"), rows, ids)
    cards: dict[int, GalleryExample] = {}
    for row, number, content in zip(rows, ids, contents, strict=True):
        label, prediction = "", ""
        if "labels" in values:
            label, prediction = (classes[int(values[name][row])] for name in ("labels", "prediction"))
        elif "targets" in values:
            label, prediction = (f"{values[name][row].flatten()[0].item():.4g}" for name in ("targets", "outputs"))
        loo = float(values["loo_label_prob"][row]) if "loo_label_prob" in values else None
        cards[row] = GalleryExample(number, label, prediction, float(scores[row]), content, loo)
    return cards
