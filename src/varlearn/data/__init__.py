"""Data sets, read from files as they are published or prepared, and served in batches that depend on numbers alone.

`load("cifar10", "train")` gives `Examples`; `Batches(examples, 50, seed=0, shuffle=True)` serves them.
"""

from varlearn.data.batches import Batches
from varlearn.data.cifar10_labels import hmc_probabilities, human_counts, noisy_labels
from varlearn.data.corruption import CORRUPTIONS, corrupt
from varlearn.data.errors import CorruptDataError, DataError, DownloadError, MissingDataError
from varlearn.data.examples import Examples
from varlearn.data.held_out import hold_out
from varlearn.data.loading import load, names, options_of, texts
from varlearn.data.synthetic import synthetic
from varlearn.data.texts import Texts

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
