"""Names of data sets and networks, for checks and lists that do not wait for torch; a test compares them with both."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from varlearn.recipes import names
from varlearn.train.config import Run

MODELS = (
    "alexnet", "densenet121", "frn_cnn", "gpt2_3m", "gpt2_10m", "gpt2_125m", "gpt2_355m", "gpt2_773m", "gpt2_tiny",
    "gru", "lenet", "mlp", "preresnet110", "pretrained", "resnet18", "resnet20", "resnet20_swish", "resnet50",
    "small_cnn",
)  # fmt: skip
DATA = (
    "ag_news", "ag_news-pack", "ag_news-pack-human", "amazon-standin", "amazon_polarity", "brown", "cifar10",
    "cifar10-corrupted", "cifar100", "cifar100-pack", "cifar10c", "cola", "digits", "digits-noise",
    "digits-upside-down", "fashion_mnist", "flowers102", "flowers102-pack", "imagenet", "imdb", "in-between", "mnist",
    "mnli", "mnli-pack", "mrpc", "openwebtext", "qnli", "qnli-pack", "qqp", "qqp-pack", "rotten_tomatoes", "rte",
    "sst2", "sst5", "stsb", "svhn", "svhn-pack", "tinyimagenet", "tinyimagenet-pack", "tinyshakespeare", "uci-boston",
    "uci-concrete", "uci-energy", "uci-naval", "uci-protein", "uci-wine", "uci-yacht", "wikitext2", "wnli",
    "yelp-standin", "yelp_polarity", "yelp_polarity-pack",
)  # fmt: skip
OWN_FILES = (".txt", ".bin")  # of text, and of GPT-2 tokens

if TYPE_CHECKING:
    RecipeName = str
else:  # completed in shells; other words are taken too, and refused by `recipe` with a suggestion
    RecipeName = Annotated[Literal[tuple(names())] | str, Parameter(show_choices=False)]


def check_names(run: Run) -> None:
    """Refuse a network or data set that does not exist.

    Raises:
        ValueError: naming the setting and the nearest name.

    >>> from dataclasses import replace
    >>> from varlearn.train.config import Model
    >>> check_names(replace(Run(), model=Model("resnet21")))
    Traceback (most recent call last):
    ...
    ValueError: model.name='resnet21' is not a network; did you mean resnet20?
    """
    if run.model.name not in MODELS:
        raise ValueError(f"model.name={run.model.name!r} is not a network; {_cure(run.model.name, MODELS, 'models')}")
    for setting, name in [("data.name", run.data.name), *(("data.ood", name) for name in run.data.ood)]:
        if name.endswith(OWN_FILES):
            for path in {name.replace("{split}", split) for split in ("train", "test")}:
                if not Path(path).expanduser().is_file():
                    raise ValueError(f"{setting}={name!r}: the file {path} does not exist; give the path of a file")
        elif name not in DATA:
            raise ValueError(f"{setting}={name!r} is not a data set; {_cure(name, DATA, 'data')}")


def _cure(name: str, known: tuple[str, ...], group: str) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"varlearn list {group} shows them"
