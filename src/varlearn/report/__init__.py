"""Reports: a page from run folders or predictions, and figures for papers. The only place that draws.

The page needs torch alone. Figures for papers (`curves`, `entropies`, `gallery`, `reliability`, `save`, `svg`) are made
by matplotlib, which is imported when one of them is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from varlearn.report.run_results import RunResults, read_run
from varlearn.report.write import write_report

if TYPE_CHECKING:
    from varlearn.report.figures import curves, entropies, gallery, reliability
    from varlearn.report.style import save, svg

__all__ = [
    "RunResults",
    "curves",
    "entropies",
    "gallery",
    "read_run",
    "reliability",
    "save",
    "svg",
    "write_report",
]


def __getattr__(name: str) -> Any:
    match name:
        case "curves" | "entropies" | "gallery" | "reliability":
            return getattr(import_module("varlearn.report.figures"), name)
        case "save" | "svg":
            return getattr(import_module("varlearn.report.style"), name)
    raise AttributeError(f"module 'varlearn.report' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
