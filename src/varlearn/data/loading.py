"""From a name to examples: the table of all data sets."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from varlearn.data.ag_news import ag_news, ag_news_pack, ag_news_pack_human
from varlearn.data.cifar import cifar10, cifar100
from varlearn.data.cifar10c import cifar10_corrupted, cifar10c
from varlearn.data.corpora import brown, stream, tinyshakespeare, wikitext2
from varlearn.data.digits import digits, noise, upside_down
from varlearn.data.download import Progress, reporting
from varlearn.data.errors import MissingDataError
from varlearn.data.examples import Examples
from varlearn.data.flowers102 import flowers102
from varlearn.data.glue import TASKS, stsb
from varlearn.data.glue_samples import SAMPLES
from varlearn.data.held_out import hold_out
from varlearn.data.imagenet import imagenet
from varlearn.data.imdb import imdb
from varlearn.data.in_between import in_between
from varlearn.data.mnist import fashion_mnist, mnist
from varlearn.data.mrpc import mrpc
from varlearn.data.openwebtext import openwebtext
from varlearn.data.own_files import text_file, token_file
from varlearn.data.pack import cifar100_pack, flowers102_pack, svhn_pack, tinyimagenet_pack
from varlearn.data.review_polarity import REVIEWS
from varlearn.data.sentiment import rotten_tomatoes, sst5
from varlearn.data.svhn import svhn
from varlearn.data.text_sets import Texts, TextSource, tokenized
from varlearn.data.tinyimagenet import tinyimagenet
from varlearn.data.uci import LOADERS as UCI

IMAGES: dict[str, Callable[..., Examples]] = {
    "cifar10": cifar10,
    "cifar10-corrupted": cifar10_corrupted,
    "cifar100": cifar100,
    "cifar100-pack": cifar100_pack,
    "cifar10c": cifar10c,
    "digits": digits,
    "digits-noise": noise,
    "digits-upside-down": upside_down,
    "fashion_mnist": fashion_mnist,
    "flowers102": flowers102,
    "flowers102-pack": flowers102_pack,
    "imagenet": imagenet,
    "mnist": mnist,
    "svhn": svhn,
    "svhn-pack": svhn_pack,
    "tinyimagenet": tinyimagenet,
    "tinyimagenet-pack": tinyimagenet_pack,
}
TEXTS: dict[str, TextSource] = {
    "ag_news": ag_news,
    "ag_news-pack": ag_news_pack,
    "ag_news-pack-human": ag_news_pack_human,
    "imdb": imdb,
    "mrpc": mrpc,
    "rotten_tomatoes": rotten_tomatoes,
    "sst5": sst5,
    "stsb": stsb,
    **{name: task.texts for name, task in TASKS.items()},
    **SAMPLES,
    **REVIEWS,
}
OWN_VALIDATION = ("rotten_tomatoes",)  # these have a split of this name
CORPORA: dict[str, Callable[[str, Path | None], str]] = {
    "brown": brown,
    "tinyshakespeare": tinyshakespeare,
    "wikitext2": wikitext2,
}
TOKENS: dict[str, Callable[..., Examples]] = {"openwebtext": openwebtext}
TABLES: dict[str, Callable[..., Examples]] = {"in-between": in_between, **UCI}


def names() -> list[str]:
    """The names that `load` knows, in alphabetical order.

    >>> "digits" in names()
    True
    """
    return sorted([*IMAGES, *TEXTS, *CORPORA, *TOKENS, *TABLES])


def load(
    name: str,
    split: str,
    root: Path | str | None = None,
    *,
    validation: float = 0.0,
    progress: Progress | None = None,
    **options: Any,
) -> Examples:
    """One split of a data set.

    Args:
        name: one of `names()`, or a file of one's own: text, ".txt", or GPT-2 tokens, ".bin"; see `own_files`.
        split: "train", "test", or another that the set has; "validation" for examples held out of "train",
            or the validation split of a set that has one.
        root: folder that holds the data; where None, `VARLEARN_DATA` and the cache are searched and what neither has is
            downloaded.
        validation: what to hold out of "train": a share below 1, or a number of examples; see `hold_out`. Give the same
            for "train" and "validation". Vocabularies and normalisation are those of the whole training split.
        progress: told of each piece of a download: file, bytes received, bytes expected (None if not known).
        **options: the set's own, see `options_of`; for texts `tokens` ("words", "bytes", "gpt2"), `vocab` and, for
            labelled ones, `context`.

    Raises:
        ValueError: unknown name, split or option.
        MissingDataError: the data are nowhere; the message says what to put where.
        CorruptDataError: they are damaged or incomplete.

    >>> load("digits", "test").inputs.shape
    torch.Size([797, 1, 8, 8])
    >>> [len(load("digits", split, validation=0.2)) for split in ("train", "validation", "test")]
    [800, 200, 797]
    """
    if split == "validation" and validation == 0 and name not in OWN_VALIDATION:
        raise ValueError(
            f"split='validation' of {name} needs validation=, a share or number of training examples to hold out; "
            "give the same for split='train'"
        )
    if split in ("train", "validation") and validation != 0:
        everything = load(name, "train", root, progress=progress, **options)
        return hold_out(everything, validation)[split == "validation"]
    function = _function(name)
    known = options_of(name)
    for option in options:
        if option not in known:
            has = f"its options are {', '.join(known)}" if known else "it has none"
            raise ValueError(f"{option} is not an option of {name}; {has}")
    try:
        with reporting(progress):
            return function(split, Path(root) if root is not None else None, **options)
    except MissingDataError as error:
        if f"{name}-pack" not in names():
            raise
        raise type(error)(f"{error}; {name}-pack, a part of it, can be loaded without it") from error


def options_of(name: str) -> tuple[str, ...]:
    """The options that `load` takes for a data set.

    >>> options_of("tinyshakespeare"), options_of("cifar10")
    (('tokens', 'vocab'), ())
    """
    parameters = inspect.signature(_function(name)).parameters.values()
    return tuple(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)


def texts(name: str, split: str, root: Path | str | None = None) -> Texts:
    """The unencoded texts of a set, for your own tokenizer.

    Args:
        name: of a set of labelled texts, e.g. "sst2".
        split: "train", "test", or another that the set has.
        root: see `load`.
    """
    if name not in TEXTS:
        raise ValueError(f"{name!r} is not a set of labelled texts; {_cure(name, list(TEXTS))}")
    return TEXTS[name](split, Path(root) if root is not None else None)


def _function(name: str) -> Callable[..., Examples]:
    if name in IMAGES:
        return IMAGES[name]
    if name in TOKENS:
        return TOKENS[name]
    if name in TABLES:
        return TABLES[name]
    if name in TEXTS:
        return partial(tokenized, TEXTS[name])
    if name in CORPORA:
        return partial(stream, CORPORA[name])
    if name.endswith(".txt"):
        return partial(stream, lambda split, root: text_file(name, split))
    if name.endswith(".bin"):
        return partial(token_file, name)
    raise ValueError(f"{name!r} is not a data set; {_cure(name, names())}")


def _cure(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
