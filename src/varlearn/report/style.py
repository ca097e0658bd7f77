"""How figures look, and how they leave: SVG that follows the page's light or dark theme, and PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cycler import cycler
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from varlearn.report.write import write

# Readable on white and on near-black, and told apart by people who do not see red and green as others do.
COLORS = ("#4c8dd6", "#e08b2f", "#3aa37c", "#c2589b", "#8d7ae0", "#8c8c8c")
INK = "#010203"  # stands for the page's text colour: no other line or letter has it

SETTINGS: dict[Any, Any] = {
    "text.parse_math": False,  # names may have dollar signs
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.alpha": 0.15,
    "grid.color": INK,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "varlearn",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Inside the block, matplotlib has this module's settings; afterwards its own again."""
    with rc_context(SETTINGS):
        yield


def figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, belonging to no window."""
    made = Figure(figsize=(width, height))
    FigureCanvasAgg(made)
    return made


def logarithmic(axis: Axes) -> None:
    """A logarithmic vertical axis with plain numbers, 0.01 and not 10 to the -2."""
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())


def svg(made: Figure) -> str:
    """The figure as an `<svg>` element to put into a page: no declaration, no date, ink in the page's text colour.

    Equal figures give equal text.
    """
    buffer = io.StringIO()
    with drawing():
        made.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r"font: (?:\d+ )?([\d.]+)px [^;\"]*", r"font: \1px system-ui, sans-serif", text)
    return text.replace(INK, "currentColor")


def save(made: Figure, stem: Path) -> tuple[Path, Path]:
    """Write `stem.png` (150 dots per inch, on white) and `stem.svg`; return both paths."""
    png, vector = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    with drawing():
        made.draw_without_rendering()
        made.set_layout_engine("none")  # laid out once, not again for each file
        write(png, lambda path: made.savefig(path, format="png", dpi=150, facecolor="white", transparent=False))
    write(vector, lambda path: path.write_text(svg(made), encoding="utf-8"))
    return png, vector
