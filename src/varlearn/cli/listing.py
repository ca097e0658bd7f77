"""`varlearn list`."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from varlearn.cli.known_names import DATA, MODELS
from varlearn.cli.show import console, say, settings, table
from varlearn.methods import METHODS
from varlearn.recipes import names, recipe
from varlearn.recipes.paper_artefacts import ARTEFACTS
from varlearn.train.config import Run

# What `varlearn.data` reads for training: one of these suffices. Checked by a test against what it loads.
FILES = {
    "ag_news": ("ag_news/train.csv",),
    "ag_news-pack": ("text/ag_news_train10k.tsv.xz",),
    "brown": ("text/brown.txt.xz", "brown.zip"),
    "cifar10": ("cifar10/train_00.webp", "cifar-10-binary.tar.gz"),
    "cifar100": ("cifar-100-binary.tar.gz",),
    "cola": ("text/cola_train.tsv.xz", "cola_public_1.1.zip"),
    "amazon-standin": ("text/amazon_train.tsv.xz",),
    "amazon_polarity": ("amazon_review_polarity_csv.tgz",),
    "imagenet": ("imagenet/train", "imagenet/prepared.json"),
    "imdb": ("text/imdb_train.tsv.xz", "aclImdb_v1.tar.gz"),
    "openwebtext": ("openwebtext/train.bin",),
    "mnli": ("text/mnli_train.tsv.xz", "multinli_1.0.zip"),
    "mnli-pack": ("text/mnli_train10k.tsv.xz",),
    "mrpc": ("text/mrpc_train.tsv.xz", "msr_paraphrase_train.txt"),
    "qnli": ("text/qnli_train.tsv.xz", "QNLIv2.zip"),
    "qnli-pack": ("text/qnli_train5k.tsv.xz",),
    "qqp": ("text/qqp_train.tsv.xz", "QQP-clean.zip"),
    "qqp-pack": ("text/qqp_train10k.tsv.xz",),
    "rte": ("text/rte_train.tsv.xz", "RTE.zip"),
    "sst2": ("text/sst2_train.tsv.xz", "SST-2.zip"),
    "stsb": ("text/stsb_train.tsv.xz", "Stsbenchmark.tar.gz"),
    "rotten_tomatoes": ("text/rotten_tomatoes.tsv.xz", "rt-polaritydata.tar.gz"),
    "tinyimagenet": ("tiny-imagenet-200.zip",),
    "yelp-standin": ("text/yelp_train.tsv.xz",),
    "yelp_polarity": ("yelp_review_polarity_csv.tgz",),
}
MADE_HERE = ("in-between",)
VOCABULARIES = {"bytes": 256, "gpt2": 50_304, "words": 10_000}  # what `train` gives a network for each kind of tokens
PAPER = "paper"
LISTS = {"methods": tuple(METHODS), "models": MODELS, "data": DATA}


def list_recipes(
    what: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    scale: Literal["small", "paper"] = "small",
) -> int:
    """Show the recipes in groups, one group, one recipe with its settings, or the methods, models or data sets.

    Args:
        what: a group such as cifar10, a recipe such as digits-ivon, paper for the paper's tables and figures, or one
            of methods, models and data.
        scale: whose settings to show.
    """
    groups = _groups()
    if what is None:
        _overview(groups, scale)
    elif what == PAPER:
        _paper()
    elif what in LISTS:
        console().print("\n".join(LISTS[what]), markup=False)
    elif what in groups:
        _group(groups[what], scale)
    elif what in names():
        run = recipe(what, scale)
        settings(asdict(run))
        size = f"the pretrained model {run.model.path}" if run.model.path else f"{parameters(run):,} parameters"
        say(f"{size}; train it with: varlearn train {what}")
    else:
        near = get_close_matches(what, [*groups, *LISTS, PAPER, *names()], n=3, cutoff=0.5)
        cure = f"did you mean {' or '.join(near)}?" if near else f"groups are {', '.join(groups)}"
        raise ValueError(f"{what!r} is not a group, a recipe, or one of {', '.join(LISTS)}; {cure}")
    return 0


def _paper() -> None:
    """Every table and figure of the paper, with its command."""
    rows = [[one.label, one.shows, f"reproduce {one.command}", one.full] for one in ARTEFACTS]
    table(["paper", "shows", "varlearn", "its full size takes"], rows)


def _groups() -> dict[str, list[str]]:
    """Recipes by the first part of their name, which names the data."""
    groups: dict[str, list[str]] = {}
    for name in names():
        groups.setdefault(name.partition("-")[0], []).append(name)
    return groups


def _overview(groups: dict[str, list[str]], scale: Literal["small", "paper"]) -> None:
    rows = [["group", "data here", "methods", "networks"]]
    for group, members in groups.items():
        parts = [name.removeprefix(f"{group}-").split("-", 0 if group == "digits" else 1) for name in members]
        networks = dict.fromkeys(part[0] for part in parts if len(part) > 1)
        here = "yes" if at_hand(recipe(members[0], scale).data.name) else "no"
        methods = dict.fromkeys(part[-1] for part in parts)
        shown = "all" if methods.keys() == METHODS.keys() else " ".join(methods)
        rows.append([group, here, shown, " ".join(networks) or "mlp"])
    out = console()
    out.print("A recipe is named GROUP-NETWORK-METHOD, of digits GROUP-METHOD:\n", markup=False)
    widths = [max(len(row[place]) for row in rows) for place in range(2)]
    widths += [24, max(20, min(out.width, 80) - sum(widths) - 24 - 8)]  # two spaces before each column
    for row in rows:
        cells = [textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in zip(row, widths, strict=True)]
        for line in zip_longest(*cells, fillvalue=""):
            padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            out.print(f"  {'  '.join(padded)}".rstrip(), markup=False)
    every = textwrap.wrap(f"All methods are {' '.join(METHODS)}.", max(20, min(out.width, 80)), break_on_hyphens=False)
    out.print("\n" + "\n".join(every), markup=False)
    out.print(
        "\nvarlearn train RECIPE    train it, e.g. varlearn train digits-ivon"
        "\nvarlearn list GROUP      its recipes, with data and length"
        "\nvarlearn list RECIPE     its settings"
        "\nvarlearn list paper      tables and figures of the paper, with their commands"
        "\nvarlearn list methods    names for --optim.name; models and data for the others",
        markup=False,
    )


def _group(members: list[str], scale: Literal["small", "paper"]) -> None:
    rows = []
    for run in (recipe(name, scale) for name in members):
        size = f"{run.data.name}, {run.data.subset:,}" if run.data.subset else run.data.name
        length = f"{run.train.steps:,} steps" if run.train.steps else f"{run.train.epochs} epochs"
        rows.append([run.recipe, size, length, "yes" if at_hand(run.data.name) else "no"])
    table(["recipe", "data", "length", "data here"], rows)
    if any(row[-1] == "no" for row in rows):
        say("Data that are not here are downloaded when needed, where their terms allow it; else the error says how.")


def at_hand(data: str) -> bool:
    """Whether a data set can be read without downloading it.

    >>> at_hand("digits")  # they come with scikit-learn
    True
    """
    if data == "digits":
        return find_spec("sklearn") is not None
    if data in MADE_HERE:
        return True
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
