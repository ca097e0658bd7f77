"""A gallery of the examples that a network is most and least sensitive to, as a page and as a picture."""

from __future__ import annotations

import base64
import importlib.util
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import torch

from varlearn.report.axis_scale import fitted, short
from varlearn.report.curve_figure import Curve, curve_figure
from varlearn.report.page import Section, figures, page
from varlearn.report.write import write

COLUMNS = 12  # of the picture


@dataclass(frozen=True)
class GalleryExample:
    """One example as it is shown.

    Attributes:
        number: its id.
        label: the given class or value, in words.
        prediction: of the network, in words.
        score: that it was chosen by.
        content: "png" (base64), "text" or "row".
        loo: the leave-one-out probability of the label; None where there is none.
    """

    number: int
    label: str
    prediction: str
    score: float
    content: Mapping[str, Any] = field(default_factory=dict)
    loo: float | None = None

    @property
    def words(self) -> str:
        """Label, prediction and score in a line."""
        says = self.label if self.label == self.prediction else f"{self.label}, predicted {self.prediction}"
        return f"{says}: {short(self.score)}"


Rows = Mapping[str, Sequence[GalleryExample]]
"""Title of a row, e.g. "most sensitive" -> its examples."""


def write_gallery(
    sections: Mapping[str, Rows], scores: Sequence[float], out: Path, *, title: str, note: str, measure: str
) -> tuple[Path, Path | None]:
    """Write `gallery.html`, and `gallery.png` where there are images and matplotlib.

    Args:
        sections: heading, e.g. a class -> rows.
        scores: of all examples, for the figure of their distribution.
        out: folder.
        title: of the page.
        note: a line below it.
        measure: what the scores are.

    Returns:
        The paths; None for a picture that was not written.

    >>> import tempfile
    >>> rows = {"most sensitive": [GalleryExample(3, "cat", "dog", 0.5, {"text": "meow"})]}
    >>> with tempfile.TemporaryDirectory() as out:
    ...     html, png = write_gallery({"cat": rows}, [0.5], Path(out), title="x", note="", measure="score")
    ...     "cat, predicted dog: 0.5" in html.read_text(), png
    (True, None)
    """
    shown: list[Section] = []
    for heading, rows in sections.items():
        shown.append(Section(heading, "".join(_row(name, row) for name, row in rows.items())))
    shown.append(Section("Distribution", _distribution(scores, measure)))
    text = page(title, note, "", shown)
    path = out / "gallery.html"
    write(path, lambda place: place.write_text(text, encoding="utf-8"))
    picture = {f"{heading}: {name}": row[:COLUMNS] for heading, rows in sections.items() for name, row in rows.items()}
    return path, _write_picture(picture, out / "gallery.png")


def _distribution(scores: Sequence[float], measure: str) -> str:
    """The scores from high to low: few examples with large ones stand at the left."""
    ordered = sorted((float(score) for score in scores), reverse=True)
    if len(ordered) < 2:
        return ""
    places = sorted({round(i * (len(ordered) - 1) / 199) for i in range(200)})
    points = [(float(place + 1), ordered[place]) for place in places]
    caption = f"{measure}, of all {len(ordered):,} examples from the most to the least sensitive."
    x, y = fitted("rank", [1.0, float(len(ordered))], low=0.0), fitted("score", ordered, low=0.0)
    return figures([curve_figure("Sensitivities", caption, [Curve("all examples", 0, 0, points, [], [])], x, y)])


def _row(name: str, row: Sequence[GalleryExample]) -> str:
    cards = "".join(f"<li>{_shown(one)}{_facts(one)}</li>" for one in row)
    return f'<h3>{escape(name)}</h3><ul class="cards">{cards}</ul>' if row else ""


def _shown(one: GalleryExample) -> str:
    if "png" in one.content:
        label = escape(f"Example {one.number}: {one.words}")
        return f'<img src="data:image/png;base64,{one.content["png"]}" alt="{label}">'
    if "text" in one.content:
        return f"<q>{escape(str(one.content['text']))}</q>"
    return escape(", ".join(map(short, one.content.get("row", ())[:8])))


def _facts(one: GalleryExample) -> str:
    loo = "" if one.loo is None else f"<br>LOO probability {short(one.loo)}"
    return f"<p>{escape(one.words)}{loo}<br>number {one.number}</p>"


def _write_picture(rows: Rows, path: Path) -> Path | None:
    drawn = {name: row for name, row in rows.items() if row and all("png" in one.content for one in row)}
    if not drawn or importlib.util.find_spec("matplotlib") is None:  # the page needs nothing of it
        return None
    from varlearn.report.figures import gallery

    pictures = {
        name: (torch.stack([_pixels(one) for one in row]), [one.words.replace(", ", "\n") for one in row])
        for name, row in drawn.items()
    }
    made = gallery(pictures)
    write(path, lambda place: made.savefig(place, format="png", dpi=150, facecolor="white", transparent=False))
    return path


def _pixels(one: GalleryExample) -> torch.Tensor:
    """The image as numbers in [0, 1], (C, H, W)."""
    from matplotlib.image import imread

    found = torch.from_numpy(imread(io.BytesIO(base64.b64decode(one.content["png"])), format="png").copy())
    return found[None] if found.dim() == 2 else found[..., :3].permute(2, 0, 1)
