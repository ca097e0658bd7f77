"""Every table and figure of the paper: what it shows, the command that repeats it, and what its full size takes."""

from __future__ import annotations

from difflib import get_close_matches
from typing import NamedTuple


class Artefact(NamedTuple):
    """A table or figure of the paper.

    Attributes:
        label: as the paper numbers it.
        shows: what it is about.
        command: the name that `varlearn reproduce` knows it by.
        full: what the paper's size takes that two cores do not have; the small scale runs here.
    """

    label: str
    shows: str
    command: str
    full: str


_R20 = "ResNet-20 on CIFAR-10, 200 epochs, 5 seeds: GPU hours"

ARTEFACTS = (
    Artefact("Table 1", "image classification", "table1", "ImageNet, and 8 GPUs for ResNet-50"),
    Artefact("Table 2", "Bayesian methods, in domain", "table2", _R20),
    Artefact("Table 3", "Bayesian methods, out of domain", "table3", f"{_R20}; SVHN and Flowers102"),
    Artefact("Table 4", "finetuning on GLUE", "table4", "GLUE, DeBERTaV3-large and RoBERTa, a GPU"),
    Artefact("Table 5", "merging finetuned models", "table5", "RoBERTa finetuned on five sets of reviews, a GPU"),
    Artefact("Table 6", "time and memory", "cost", "a GPU; GPT-2 of 125M and 355M on 8"),
    Artefact("Table 7", "Hessian estimators", "estimators", _R20),
    Artefact("Table 8", "Hessian initialization", "table8", _R20),
    Artefact("Table 9", "image classification, CIFAR-10", "table1", "four networks, 200 epochs, 5 seeds: GPU days"),
    Artefact("Table 10", "image classification, CIFAR-100", "table1", "as Table 9"),
    Artefact("Table 11", "image classification, TinyImageNet", "table1", "as Table 9"),
    Artefact("Table 12", "sizes of GLUE's tasks", "table12", "nothing: it counts the data that are here"),
    Artefact("Table 13", "recurrent networks", "table13", "CoLA, IMDB and AG News, a GPU"),
    Artefact("Table 14", "the competition of 2021", "competition", "DermaMNIST's images and the final references"),
    Artefact(
        "Figure 1", "GPT-2 and ImageNet; (b) and (c): figure1b, figure1c", "figure1", "8 GPUs, OpenWebText, ImageNet"
    ),
    Artefact("Figure 2", "GPT-2: training loss, bf16, samples", "figure2", "8 GPUs, OpenWebText"),
    Artefact("Figure 3", "(a, b) entropy; (c) in-between", "entropy", "as Table 3; (c) is whole at the small scale"),
    Artefact("Figure 4", "Monte-Carlo samples", "samples", f"{_R20}; 63 times one run's passes"),
    Artefact("Figure 5", "leave-one-out loss, ImageNet", "loo-imagenet", "ImageNet, 8 GPUs"),
    Artefact("Figure 6", "sensitive images", "sensitivity-gallery", "ImageNet, 8 GPUs"),
    Artefact("Figure 7", "shifted images", "shift", f"{_R20}; CIFAR-10-C"),
    Artefact("Figure 8", "leave-one-out loss, CIFAR-10", "loo-cifar10", "ResNet-18 and PreResNet-110, GPU days"),
)

PANELS = {"figure3a": "entropy", "figure3b": "entropy", "figure3c": "in-between", "figure1a": "figure1"}

# Tables whose lines are part of a larger table: the data set to keep.
PARTS = {"table9": ("cifar10",), "table10": ("cifar100",), "table11": ("tinyimagenet",)}


def command_of(name: str) -> str:
    """The name of the artefact that a table or figure of the paper is repeated by.

    >>> command_of("table6"), command_of("figure3c"), command_of("shift")
    ('cost', 'in-between', 'shift')
    """
    return ({_number(artefact): artefact.command for artefact in ARTEFACTS} | PANELS).get(name, name)


def _number(artefact: Artefact) -> str:
    return artefact.label.lower().replace(" ", "")


def suggestions(name: str, known: list[str]) -> str:
    """What an unknown name may have meant.

    >>> suggestions("shfit", ["shift"])
    'did you mean shift?'
    """
    every = list(dict.fromkeys([*known, *map(_number, ARTEFACTS), *PANELS]))
    near = get_close_matches(name, every, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else "varlearn list paper shows them"
