"""Single examples: what each method says of a normal, an ambiguous and a strange one; the most uncertain, the worst."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import torch
from torch import Tensor

from varlearn import metrics
from varlearn.prediction import Predictions, RegressionPredictions
from varlearn.prediction.extremes import loss_per_example, most_uncertain, worst
from varlearn.prediction.predictions_file import AnyPredictions
from varlearn.report.axis_scale import short
from varlearn.report.page import key, table
from varlearn.report.series import Series

GUESSES = 2  # most probable classes that are named
COLUMNS = 8  # of a table row that are shown
STRANGE = 2  # data sets out of the domain that a strange example is taken from


def compared_examples(series: Sequence[Series]) -> str:
    """What each method says of a normal, an ambiguous and a strange image; nothing without stored images of each.

    Normal: of the first test images, all methods are right and the mean entropy is lowest. Ambiguous: of the stored
    test images, the mean entropy over the methods is highest. Strange: the first image of each set out of the domain.
    """
    known = {one: found for one in series if (found := one.group.first.classified(one.kind))}
    stored = _stored([one.group.first.analysis for one in known])
    outside = [name for name in stored if name not in ("test", "validation")]
    sizes = {len(log_probs) for log_probs, _ in known.values()}
    images = all("png" in one for examples in stored.values() for one in examples.values())
    if not stored.get("test") or not outside or not images or len(sizes) != 1:
        return ""
    entropy = torch.stack([metrics.entropy_per_example(log_probs) for log_probs, _ in known.values()]).mean(0)
    targets = next(iter(known.values()))[1]
    numbers = [number for number in stored["test"] if number < len(entropy)]
    right = [number for number in sorted(numbers)[:4] if _all_right(known.values(), number)]
    chosen = [("Normal", "test", min(right, key=lambda number: float(entropy[number])))] if right else []
    chosen.append(("Ambiguous", "test", max(numbers, key=lambda number: float(entropy[number]))))
    chosen += [(f"Strange: {name}", name, min(stored[name])) for name in outside[:STRANGE]]
    classes = _classes(known)
    cards = []
    for title, examples, number in chosen:
        says = []
        for one in known:
            pair = one.group.first.classified(one.kind, examples)
            if pair is not None and number < len(pair[0]):
                says.append(_says(one, pair[0][number], classes))
        truth = "It has no right answer."
        if examples == "test" and targets is not None:
            truth = f"It is {classes[int(targets[number])]}."
        image = _image(stored[examples][number], f"{title}. {truth}")
        cards.append(
            f'<li><h3>{escape(title)}</h3><p>{escape(truth)}</p>{image}<dl class="says">{"".join(says)}</dl></li>'
        )
    note = (
        "Probabilities of the two most likely classes, first seed of each method. The ambiguous image is the one with "
        "the largest entropy, averaged over the methods. A strange image has no right answer: a good model is unsure."
    )
    return f'<p class="note">{note}</p><ul class="cards large">{"".join(cards)}</ul>'


def extreme_examples(series: Sequence[Series]) -> str:
    """The most uncertain and the worst test examples of the series that is averaged, else of the first."""
    for one in sorted(series, key=lambda each: each.kind != "averaged"):
        run, predictions = one.group.first, one.predictions()
        stored = _stored([run.analysis]).get("test", {})
        if not stored or not predictions:
            continue
        shown = run.analysis["examples"]
        html = ""
        for title, numbers in (("most uncertain", most_uncertain(predictions[0])), ("worst", worst(predictions[0]))):
            kept = {number: stored[number] for number in numbers if number in stored}
            if kept:
                why = "largest predictive uncertainty" if title == "most uncertain" else "largest loss"
                note = f"The {len(kept)} {title} test examples of {one.label}: {why} first."
                html += _listed(kept, predictions[0], shown.get("classes") or [], note)
        return html
    return ""


def _listed(kept: Mapping[int, dict[str, Any]], predictions: AnyPredictions, classes: Sequence[str], note: str) -> str:
    """Rows of a table as a table, images and texts as cards."""
    losses = loss_per_example(predictions)
    loss = {number: "–" if losses is None else short(float(losses[number])) for number in kept}
    if any("row" in content for content in kept.values()):
        rows = [
            [f"{number}", *_prediction(predictions, number, classes), loss[number], _row(content)]
            for number, content in kept.items()
        ]
        return table(["example", "prediction", "target", "loss", f"inputs (first {COLUMNS})"], rows, note, words=2)
    cards = []
    for number, content in kept.items():
        said, target = _prediction(predictions, number, classes)
        words = f"Says {said}; it is {target}. " if said else ""
        image = _image(content, f"test example {number}")
        text = f"<p>{escape(content['text'])}</p>" if "text" in content else ""
        cards.append(f"<li>{image}{text}{escape(words)}Loss {loss[number]}.</li>")
    large = " large" if any("text" in content for content in kept.values()) else ""
    return f'<p class="note">{escape(note)}</p><ul class="cards{large}">{"".join(cards)}</ul>'


def _prediction(predictions: AnyPredictions, number: int, classes: Sequence[str]) -> tuple[str, str]:
    """What is predicted for an example, and its target, in words; empty for texts to be continued."""
    if isinstance(predictions, RegressionPredictions):
        mean, std = float(predictions.mean.flatten()[number]), float(predictions.std.flatten()[number])
        target = "–" if predictions.targets is None else short(float(predictions.targets.flatten()[number]))
        return f"{short(mean)} ± {short(std, 2)}", target
    if not isinstance(predictions, Predictions):
        return "", ""
    said = " or ".join(f"{name} ({percent})" for name, percent, _ in _guesses(predictions.log_probs[number], classes))
    return said, "–" if predictions.targets is None else _name(classes, int(predictions.targets[number]))


def _row(content: Mapping[str, Any]) -> str:
    return ", ".join(short(value) for value in content.get("row", ())[:COLUMNS])


def _says(one: Series, log_probs: Tensor, classes: Sequence[str]) -> str:
    guesses = "".join(
        f'<dd><span>{escape(name)}</span><span class="track"><span class="bar c{one.color}" '
        f'style="width:{100 * p:.0f}%"></span></span><span>{escape(percent)}</span></dd>'
        for name, percent, p in _guesses(log_probs, classes)
    )
    return f"<div><dt>{key(one.label, one.color, 0)}</dt>{guesses}</div>"


def _guesses(log_probs: Tensor, classes: Sequence[str]) -> list[tuple[str, str, float]]:
    """(class, percent, probability) of the most probable classes."""
    top = log_probs.exp().topk(min(GUESSES, len(log_probs)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [(_name(classes, number), _percent(p), p) for number, p in pairs]


def _percent(p: float) -> str:
    return "<1%" if 0 < p < 0.005 else f"{100 * p:.0f}%"


def _name(classes: Sequence[str], number: int) -> str:
    return str(classes[number]) if number < len(classes) else str(number)


def _classes(known: Mapping[Series, Any]) -> list[str]:
    shown = [one.group.first.analysis.get("examples", {}).get("classes") for one in known]
    count = next(iter(known.values()))[0].shape[1]
    return next((names for names in shown if names and len(names) == count), [str(number) for number in range(count)])


def _all_right(pairs: Any, number: int) -> bool:
    return all(
        targets is not None and int(log_probs[number].argmax()) == int(targets[number]) for log_probs, targets in pairs
    )


def _stored(analyses: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, dict[str, Any]]]:
    """Set -> number of the example -> what can be shown of it, of all runs together."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for analysis in analyses:
        for name, examples in analysis.get("examples", {}).get("sets", {}).items():
            found.setdefault(name, {}).update({one["index"]: one for one in examples})
    return {name: examples for name, examples in found.items() if examples}


def _image(content: Mapping[str, Any], label: str) -> str:
    """An `<img>` of a stored PNG; nothing where there is none, or where it is no base64."""
    try:
        data = base64.b64encode(base64.b64decode(content.get("png", ""), validate=True)).decode()
    except (binascii.Error, ValueError):
        return ""
    return f'<img src="data:image/png;base64,{data}" alt="{escape(label.strip())}">' if data else ""
