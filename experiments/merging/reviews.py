"""The five sentiment tasks of the experiment: which rows train, choose and test, as token ids; see README.md."""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LENGTH = 32  # tokens of a text, from its beginning
BASE, TASKS = "imdb", ("rt", "sst2", "yelp", "amazon")  # the base is finetuned on the first; the models on the others
ALL = (BASE, *TASKS)
VALIDATION, TEST = 200, 250
TRAIN = {"imdb": 4_800, "rt": 1_600, "sst2": 1_600, "yelp": 1_600, "amazon": 1_600}

Batch = tuple[tuple[Tensor, Tensor], Tensor]  # (ids, mask), labels


@dataclass(frozen=True)
class Task:
    """Encoded rows of one task."""

    train: list[tuple[list[int], int]]
    validation: list[tuple[list[int], int]]
    test: list[tuple[list[int], int]]


def rows(data: Path, name: str) -> list[tuple[str, int]]:
    """(text, label) in file order; the text is the last column."""
    with lzma.open(data / "text" / f"{name}.tsv.xz", "rt", encoding="utf8", newline="\n") as lines:
        columns = [line.rstrip("\n").split("\t") for line in lines]
    return [(row[-1], int(row[0])) for row in columns]


def splits(data: Path, task: str) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Rows to train and choose with, and rows to test on. Rotten Tomatoes is cut in file order: 1,066 are last."""
    if task == "rt":
        every = rows(data, "rotten_tomatoes")
        of = {label: [row for row in every if row[1] == label] for label in (0, 1)}
        return of[0][:-533] + of[1][:-533], of[0][-533:] + of[1][-533:]
    return rows(data, f"{task}_train"), rows(data, "sst2_dev" if task == "sst2" else f"{task}_test")


def load(data: Path, task: str, tokenizer: Any) -> Task:
    """A fixed random choice of rows: the same for every seed and method."""
    known, unseen = splits(data, task)
    chosen = shuffled(known)[: TRAIN[task] + VALIDATION]
    encoded = [encode(part, tokenizer) for part in (chosen, shuffled(unseen)[:TEST])]
    return Task(encoded[0][VALIDATION:], encoded[0][:VALIDATION], encoded[1])


def shuffled(items: list[Any]) -> list[Any]:
    order = torch.randperm(len(items), generator=torch.Generator().manual_seed(0))
    return [items[place] for place in order.tolist()]


def encode(texts: list[tuple[str, int]], tokenizer: Any) -> list[tuple[list[int], int]]:
    ids = tokenizer([text for text, _ in texts], truncation=True, max_length=LENGTH)["input_ids"]
    return [(one, label) for one, (_, label) in zip(ids, texts, strict=True)]


def batches(examples: list[tuple[list[int], int]], size: int, order: list[int] | None = None) -> list[Batch]:
    """Padded batches in the given order, or sorted by length, which does not change scores."""
    places = order or sorted(range(len(examples)), key=lambda place: len(examples[place][0]))
    return [
        collate([examples[place] for place in places[start : start + size]]) for start in range(0, len(places), size)
    ]


def collate(examples: list[tuple[list[int], int]]) -> Batch:
    longest = max(len(ids) for ids, _ in examples)
    padded = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in examples])
    mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in examples])
    return (padded, mask), torch.tensor([label for _, label in examples])
