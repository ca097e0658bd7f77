"""Inputs without targets from a user's file, in the form that a data set has."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from varlearn.data.errors import CorruptDataError, MissingDataError
from varlearn.data.examples import Examples
from varlearn.data.text_sets import Texts

TABLES, ARRAYS, TEXTS = (".csv", ".tsv"), (".npy",), (".txt",)
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")


def read_inputs(
    path: Path, like: Examples, tokenize: Callable[[Texts], Examples] | None = None
) -> tuple[Examples, list[str]]:
    """Read inputs, and a name for each: its line, or its file.

    Tables: ".csv", ".tsv" or ".npy" with the columns of the data set. Images: a picture, a folder of pictures, or
    ".npy" (N, C, H, W) with numbers from 0 to 255; pictures are cut to a square and resized. Texts: ".txt", one a line.

    Args:
        path: file or folder.
        like: examples of the data set, whose kind, size and normalisation are used.
        tokenize: makes examples of texts; needed for texts.

    Raises:
        ValueError: naming the file and what it should hold.
    """
    path = path.expanduser()
    if not path.exists():
        raise MissingDataError(f"{path} does not exist; give a file of inputs")
    names: list[str]
    match like.kind:
        case "text" if tokenize is not None:
            lines = _lines(path)
            found = tokenize(Texts(tuple(lines), torch.zeros(len(lines), dtype=torch.long), like.classes))
            return found, [str(number) for number in range(1, len(lines) + 1)]
        case "table":
            inputs = _rows(path, like)
            names = [str(number) for number in range(1, len(inputs) + 1)]
        case "image":
            inputs, names = _images(path, like)
        case _:
            raise ValueError(
                "a language model has no inputs to be classified; predict tables, images or labelled texts"
            )
    return replace(like, inputs=inputs, targets=torch.zeros(len(inputs), dtype=like.targets.dtype)), names


def _lines(path: Path) -> list[str]:
    _expect(path, TEXTS, "texts, one a line")
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise CorruptDataError(f"{path} holds no text; write one a line")
    return lines


def _rows(path: Path, like: Examples) -> Tensor:
    _expect(path, TABLES + ARRAYS, "a table")
    rows = _array(path) if path.suffix in ARRAYS else _table(path)
    assert isinstance(like.inputs, Tensor)
    columns = like.inputs.shape[1]
    if rows.dim() != 2 or rows.shape[1] != columns:
        raise ValueError(f"{path} has shape {tuple(rows.shape)}, and the run reads rows of {columns} numbers")
    return rows.float()


def _table(path: Path) -> Tensor:
    """The numbers of a file; a first line that is no numbers is a heading."""
    with open(path, newline="", encoding="utf-8") as file:
        lines = [line for line in csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",") if line]
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append([float(cell) for cell in line])
        except ValueError as error:
            if number > 1:
                raise CorruptDataError(f"{path}, line {number}: {error}; give numbers only") from None
    if not rows or len({len(row) for row in rows}) > 1:
        raise CorruptDataError(f"{path} must hold rows of equally many numbers, and at least one")
    return torch.tensor(rows)


def _images(path: Path, like: Examples) -> tuple[Tensor, list[str]]:
    channels, height, width = _shape(like)
    if path.suffix in ARRAYS:
        images = _array(path)
        if images.dim() == 3:
            images = images.unsqueeze(1)
        if tuple(images.shape[1:]) != (channels, height, width):
            raise ValueError(
                f"{path} has shape {tuple(images.shape)}, and the run reads images (N, {channels}, {height}, {width})"
            )
        if float(images.min()) < 0.0 or float(images.max()) > 255.0:
            raise ValueError(f"{path} must hold numbers from 0 to 255, the brightness of pixels")
        return images.round().to(torch.uint8), [str(number) for number in range(1, len(images) + 1)]
    from varlearn.data.pictures import picture

    files = sorted(one for one in path.iterdir() if one.suffix.lower() in PICTURES) if path.is_dir() else [path]
    if not files:
        raise MissingDataError(f"{path} holds no pictures; put {', '.join(PICTURES)} files there")
    _expect(files[0], PICTURES, "pictures")
    images = torch.stack([picture(file.read_bytes(), height, str(file)) for file in files])
    if channels == 1:
        images = images.float().mean(1, keepdim=True).round().to(torch.uint8)
    return images, [file.name for file in files]


def _shape(like: Examples) -> tuple[int, int, int]:
    shape: Any = like.inputs.shape[1:]
    channels, height, width = shape
    return channels, height, width


def _array(path: Path) -> Tensor:
    import numpy as np

    try:
        return torch.from_numpy(np.load(path, allow_pickle=False).astype("float64"))
    except (ValueError, OSError, EOFError) as error:
        raise CorruptDataError(f"{path} must be an array of numbers that numpy.save wrote, but {error}") from error


def _expect(path: Path, suffixes: tuple[str, ...], what: str) -> None:
    if not path.is_file() or path.suffix.lower() not in suffixes:
        raise ValueError(f"{path} must be a file of {what}: {', '.join(suffixes)}")
