"""Data sets, read from files as they are published or prepared, and served in batches that depend on numbers alone.

`load("cifar10", "train")` gives `Examples`; `Batches(examples, 50, seed=0, shuffle=True)` serves them.

The names are imported when they are first used: finding files needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from varlearn.data.batches import Batches
    from varlearn.data.cifar10_labels import hmc_probabilities, human_counts, noisy_labels
    from varlearn.data.corruption import CORRUPTIONS, corrupt
    from varlearn.data.errors import CorruptDataError, DataError, DownloadError, MissingDataError
    from varlearn.data.examples import Examples
    from varlearn.data.held_out import hold_out
    from varlearn.data.loading import load, names, options_of, texts
    from varlearn.data.synthetic_twins import synthetic
    from varlearn.data.text_sets import Texts

__all__ = [
    "CORRUPTIONS",
    "Batches",
    "CorruptDataError",
    "DataError",
    "DownloadError",
    "Examples",
    "MissingDataError",
    "Texts",
    "corrupt",
    "hmc_probabilities",
    "hold_out",
    "human_counts",
    "load",
    "names",
    "noisy_labels",
    "options_of",
    "synthetic",
    "texts",
]


def __getattr__(name: str) -> Any:
    match name:
        case "Batches":
            return getattr(import_module("varlearn.data.batches"), name)
        case "hmc_probabilities" | "human_counts" | "noisy_labels":
            return getattr(import_module("varlearn.data.cifar10_labels"), name)
        case "CORRUPTIONS" | "corrupt":
            return getattr(import_module("varlearn.data.corruption"), name)
        case "CorruptDataError" | "DataError" | "DownloadError" | "MissingDataError":
            return getattr(import_module("varlearn.data.errors"), name)
        case "Examples":
            return getattr(import_module("varlearn.data.examples"), name)
        case "hold_out":
            return getattr(import_module("varlearn.data.held_out"), name)
        case "load" | "names" | "options_of" | "texts":
            return getattr(import_module("varlearn.data.loading"), name)
        case "synthetic":
            return getattr(import_module("varlearn.data.synthetic_twins"), name)
        case "Texts":
            return getattr(import_module("varlearn.data.text_sets"), name)
    raise AttributeError(f"module 'varlearn.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
