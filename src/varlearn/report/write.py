"""From the folders of runs to `report.html` and its figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from varlearn import metrics
from varlearn.report.figures import curves, entropies, reliability
from varlearn.report.page import Drawn, figures, page, settings, table
from varlearn.report.run_results import ReadRun, read_run
from varlearn.report.style import save, write

KIND_WORDS = {"mean": "at the mean", "averaged": "averaged"}
# metric -> (title, digits, factor); others are shown as they are
TITLES = {
    "accuracy": ("accuracy %", 2, 100.0),
    "nll": ("NLL", 4, 1.0),
    "ece": ("ECE", 4, 1.0),
    "brier": ("Brier", 4, 1.0),
    "auroc": ("AUROC of mistakes", 4, 1.0),
    "perplexity": ("perplexity", 3, 1.0),
    "rmse": ("RMSE", 4, 1.0),
    "crps": ("CRPS", 4, 1.0),
    "coverage90": ("90% intervals cover %", 1, 100.0),
}


def write_report(runs: Sequence[Path], out: Path) -> Path:
    """Write `report.html` and its figures as PNG and SVG.

    Args:
        runs: folders of runs, at least one; several are shown side by side.
        out: folder to write to.

    Returns:
        The path of the page.
    """
    read = [read_run(Path(run)) for run in runs]
    names = _names(read)
    drawn: list[Drawn] = []
    for stem, figure, caption in _figures(dict(zip(names, read, strict=True))):
        _, vector = save(figure, Path(out) / "figures" / stem)
        drawn.append(Drawn(vector.read_text(encoding="utf-8"), caption))
    sections = []
    if any(run.metrics for run in read):
        sections.append(("Metrics", metrics_table(names, read)))
    if drawn:
        sections.append(("Figures", figures(drawn)))
    sections.append(("Settings", settings({name: run.config for name, run in zip(names, read, strict=True)})))
    if any(run.env for run in read):
        sections.append(("Environment", settings({name: run.env for name, run in zip(names, read, strict=True)})))
    path = Path(out) / "report.html"
    text = page(", ".join(names), _note(read), sections)
    write(path, lambda target: target.write_text(text, encoding="utf-8"))
    return path


def metrics_table(names: Sequence[str], runs: Sequence[ReadRun]) -> str:
    """A line for each run and kind of prediction, a column for each metric, and a table for data out of the domain."""
    lines = [(name, run, kind) for name, run in zip(names, runs, strict=True) for kind in run.kinds if run.metrics]
    scores = [run.metrics.get(kind, {}) for _, run, kind in lines]
    words = [[name, run.label, KIND_WORDS[kind]] for name, run, kind in lines]
    html = _scores_table(words, scores, "on the test set")
    held_out = [run.metrics.get("validation", {}).get(kind, {}) for _, run, kind in lines]
    if any(held_out):
        html += "<br>" + _scores_table(words, held_out, f"on validation data{_temperatures(names, runs)}")
    away = [
        [*word, outside, *(f"{100 * values[key]:.2f}" for key in ("auroc", "fpr95", "detection_error"))]
        for word, score in zip(words, scores, strict=True)
        for outside, values in score.get("ood", {}).items()
    ]
    if away:
        head = ["run", "method", "prediction", "against", "AUROC %", "FPR at 95% TPR", "detection error %"]
        html += "<br>" + table(head, away, "told from the test set by the largest probability", words=4)
    return html


def _scores_table(words: Sequence[list[str]], scores: Sequence[dict[str, Any]], caption: str) -> str:
    """A line for each run and kind of prediction that has scores."""
    keys = [key for key in TITLES if any(key in score for score in scores)]
    cells = [
        [*word, *(_cell(score.get(key), key) for key in keys)]
        for word, score in zip(words, scores, strict=True)
        if score
    ]
    return table(["run", "method", "prediction", *(TITLES[key][0] for key in keys)], cells, caption, words=3)


def _temperatures(names: Sequence[str], runs: Sequence[ReadRun]) -> str:
    found = {name: run.metrics.get("temperature") for name, run in zip(names, runs, strict=True)}
    fitted = [f"{value:.3g} ({name})" for name, value in found.items() if isinstance(value, (int, float))]
    return f"; temperature of the posterior, fitted to them: {', '.join(fitted)}" if fitted else ""


def _figures(runs: dict[str, ReadRun]) -> Iterator[tuple[str, Figure, str]]:
    """(file name, figure, caption) of all that the runs have something for."""
    found = {
        _label(name, run, kind, runs): pair
        for name, run in runs.items()
        for kind in run.kinds
        if (pair := run.classified(kind)) is not None
    }
    labelled = {name: (log_probs, targets) for name, (log_probs, targets) in found.items() if targets is not None}
    if labelled:
        yield (
            "reliability",
            reliability({name: metrics.reliability_curve(*pair) for name, pair in labelled.items()}),
            "Right answers against confidence: on the dashed line a model is as sure as it may be, under it too sure. "
            "Faint dots have fewer than ten examples. Below: how often each confidence occurs.",
        )
    for name, run in runs.items():
        for kind in run.kinds:
            if (pair := run.classified(kind)) is None:
                continue
            label = _label(name, run, kind, runs)
            outside = {
                other: metrics.entropy_per_example(away[0])
                for other in run.outside
                if (away := run.classified(kind, other)) is not None
            }
            yield (
                f"entropy-{_file(label)}",
                entropies(metrics.entropy_per_example(pair[0]), outside, label, math.log(pair[0].shape[1])),
                "Predictive entropy" + (": what lies apart can be told apart." if outside else "."),
            )
    losses = {name: _series(run, "loss") for name, run in runs.items()}
    if any(losses.values()):
        yield "loss", curves(losses, "step", "training loss", log=True), "Loss on training batches."
    for split, (key, word) in product(("validation", "test"), (("nll", "NLL"), ("accuracy",) * 2, ("perplexity",) * 2)):
        series = {name: points for name, run in runs.items() if (points := _series(run, "eval", key, split=split))}
        if any(len(points) > 1 for points in series.values()):
            title = f"{split} {word}"
            yield (
                f"{split}-{key}",
                curves(series, "step", title),
                f"{title[0].upper()}{title[1:]} at the mean, while training.",
            )
    stds = {name: points for name, run in runs.items() if (points := _series(run, run.method, "std_mean"))}
    if stds:
        yield "std", curves(stds, "step", "mean std", log=True), "Width of the posterior: mean over weights of sigma."


def _series(run: ReadRun, *keys: str, split: str | None = None) -> list[tuple[float, float]]:
    """(step, value) of the records that have the keys; of those about one split. Old records are about the test set."""
    points = []
    for record in run.log:
        if split is not None and record.get("split", "test") != split:
            continue
        value: Any = record
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, (int, float)):
            points.append((float(record["step"]), float(value)))
    return points


def _names(runs: Sequence[ReadRun]) -> list[str]:
    """Folder names, numbered where two are equal."""
    seen: dict[str, int] = {}
    names = []
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        names.append(run.name if seen[run.name] == 1 else f"{run.name} ({seen[run.name]})")
    return names


def _label(name: str, run: ReadRun, kind: str, runs: dict[str, ReadRun]) -> str:
    head = run.label if len(runs) == 1 else name
    return f"{head} {KIND_WORDS[kind]}" if len(run.kinds) > 1 else head


def _file(label: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in label.lower())


def _cell(value: Any, key: str) -> str:
    _, digits, factor = TITLES[key]
    if isinstance(value, (int, float)) and math.isfinite(value):
        return f"{factor * value:.{digits}f}"
    return "–" if value is None else str(value)


def _note(runs: Sequence[ReadRun]) -> str:
    first = runs[0].config
    words = [
        f"{first.get('model', {}).get('name')} on {first.get('data', {}).get('name')}",
        f"scale {first.get('scale')}",
        f"seed {first.get('seed')}" if len(runs) == 1 else f"{len(runs)} runs",
    ]
    for run in runs:
        if run.damaged_lines:
            numbers = ", ".join(map(str, run.damaged_lines[:5])) + (", ..." if len(run.damaged_lines) > 5 else "")
            words.append(
                f"log.jsonl of {run.name}: {len(run.damaged_lines)} line(s) damaged or out of place and left out "
                f"({numbers})"
            )
    return ", ".join(words)
