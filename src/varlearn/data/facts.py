"""What is fixed about each data set, whether or not its files are at hand; the synthetic twins are made from it."""

from __future__ import annotations

from varlearn.data import ag_news, glue, glue_samples, imdb, mrpc, review_polarity, sentiment, uci
from varlearn.data.cifar import CIFAR10, CIFAR100
from varlearn.data.digits import DIGITS, STRANGE
from varlearn.data.flowers102 import FLOWERS102
from varlearn.data.imagenet import IMAGENET
from varlearn.data.imageset import ImageSet, numbered
from varlearn.data.mnist import FASHION_MNIST, MNIST
from varlearn.data.pack import UNLABELLED
from varlearn.data.svhn import SVHN
from varlearn.data.tinyimagenet import TINYIMAGENET

_SMALL = (3, 32, 32)

IMAGES: dict[str, ImageSet] = {
    "cifar10": CIFAR10,
    "cifar10-corrupted": CIFAR10,
    "cifar100": CIFAR100,
    "cifar100-pack": ImageSet(CIFAR100.classes, _SMALL, {"test": 2_033}),
    "cifar10c": CIFAR10,
    "digits": DIGITS,
    "digits-noise": STRANGE,
    "digits-upside-down": STRANGE,
    "fashion_mnist": FASHION_MNIST,
    "flowers102": FLOWERS102,
    "flowers102-pack": ImageSet(numbered(102), _SMALL, {"test": 5_000}),
    "imagenet": IMAGENET,
    "mnist": MNIST,
    "svhn": SVHN,
    "svhn-pack": ImageSet(UNLABELLED, _SMALL, {"test": 55}),
    "tinyimagenet": TINYIMAGENET,
    "tinyimagenet-pack": ImageSet(numbered(200), _SMALL, {"test": 5_000}),
}
"""Sets of images."""

TEXTS: dict[str, tuple[str, ...]] = {
    "ag_news": ag_news.CLASSES,
    "ag_news-pack": ag_news.CLASSES,
    "ag_news-pack-human": ag_news.CLASSES,
    "imdb": imdb.CLASSES,
    "mrpc": mrpc.CLASSES,
    "rotten_tomatoes": sentiment.CLASSES,
    "sst5": sentiment.SST5_CLASSES,
    "stsb": (),
    **{name: task.classes for name, task in glue.TASKS.items()},
    **{name: glue.TASKS[name.removesuffix("-pack")].classes for name in glue_samples.SAMPLES},
    **dict.fromkeys(review_polarity.REVIEWS, review_polarity.CLASSES),
}
"""Classes of the labelled texts; none for scores."""

CORPORA: tuple[str, ...] = ("brown", "openwebtext", "tinyshakespeare", "wikitext2")
"""Texts for language modelling."""

TABLES: dict[str, int] = {"in-between": 1} | {name: columns for name, (_, _, columns, _) in uci.SHAPES.items()}
"""Columns of the tables."""
