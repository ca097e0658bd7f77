"""`varlearn list`."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from varlearn.cli.show import say, table
from varlearn.recipes import names, recipe
from varlearn.train.config import Run

# What `varlearn.data` reads for training: one of these suffices. Checked by a test against what it loads.
FILES = {
    "ag_news": ("ag_news/train.csv",),
    "ag_news-pack": ("text/ag_news_train10k.tsv.xz",),
    "brown": ("text/brown.txt.xz", "brown.zip"),
    "cifar10": ("cifar10/train_00.webp", "cifar-10-binary.tar.gz"),
    "cifar100": ("cifar-100-binary.tar.gz",),
    "cola": ("text/cola_train.tsv.xz", "cola_public_1.1.zip"),
    "imagenet": ("imagenet/train",),
    "imdb": ("text/imdb_train.tsv.xz", "aclImdb_v1.tar.gz"),
    "tinyimagenet": ("tiny-imagenet-200.zip",),
}
VOCABULARIES = {"bytes": 256, "gpt2": 50_304, "words": 10_000}  # what `train` gives a network for each kind of tokens


def list_recipes(*, scale: Literal["small", "paper"] = "small") -> int:
    """Show the recipes: the network and its parameters, the data and whether they are here, the length of the run.

    Args:
        scale: whose settings to show.
    """
    rows = []
    for run in (recipe(name, scale) for name in names()):
        size = f"{run.data.name}, first {run.data.subset:,}" if run.data.subset else run.data.name
        length = f"{run.train.steps:,} steps" if run.train.steps else f"{run.train.epochs} epochs"
        here = "yes" if at_hand(run.data.name) else "no"
        rows.append([run.recipe, size, here, length, run.model.name, f"{parameters(run):,}"])
    table(["recipe", "data", "at hand", "length", "network", "parameters"], rows, numbers=1)
    say("data that are not at hand are downloaded when needed, where their terms allow it; else the error says how")
    return 0


def at_hand(data: str) -> bool:
    """Whether a data set can be read without downloading it.

    >>> at_hand("digits")  # they come with scikit-learn
    True
    """
    if data == "digits":
        return find_spec("sklearn") is not None
    if data.endswith(".txt"):
        return Path(data).is_file()
    from varlearn.data import sources

    return any(sources.find(path, None) is not None for path in FILES[data])


def parameters(run: Run) -> int:
    """Parameters of a run's network; of a text classifier, with a vocabulary of 10,000.

    >>> parameters(recipe("cifar10-resnet20-ivon"))
    274042
    """
    return _parameters(run.model.name, run.model.classes, run.model.hidden, run.data.context, run.data.tokens)


@lru_cache
def _parameters(name: str, classes: int, hidden: tuple[int, ...], context: int, tokens: str) -> int:
    import torch

    from varlearn.models.model_table import MODELS

    row = MODELS[name]
    known = {"classes": classes, "hidden": hidden, "context": context, "vocab": VOCABULARIES[tokens]}
    known |= {"inputs": 64, "outputs": classes, "channels": 3}  # 8 x 8 digits, colour images
    if "text" in row.reads:
        with torch.random.fork_rng(devices=[]):  # on the meta device recurrent layers take seconds
            return sum(param.numel() for param in row.build(known).parameters())
    with torch.device("meta"):  # shapes without numbers
        return sum(param.numel() for param in row.build(known).parameters())
