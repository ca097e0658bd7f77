"""Labelled texts, and how they become examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from varlearn.data import sources
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples
from varlearn.data.tokenizers import Tokenizer, Tokens, tokenizer

_PADDING, _BETWEEN, _FIRST = 0, 1, 2  # filling up, the border of two texts, and the first number of the tokenizer's


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts, or pairs of texts, with their labels: what a tokenizer of one's own choice wants.

    Attributes:
        texts: the (first) texts.
        targets: classes int64 (N,), or scores float32 (N,).
        classes: names by number; empty for scores.
        seconds: the second text of each pair; empty where the set has single texts.

    >>> len(Texts(("good", "bad"), torch.tensor([1, 0]), ("negative", "positive")))
    2
    """

    texts: tuple[str, ...]
    targets: Tensor
    classes: tuple[str, ...]
    seconds: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)


def joined_texts(parts: Sequence[Texts]) -> Texts:
    """The texts of several parts of one set, one part after the other.

    >>> part = Texts(("good",), torch.tensor([1]), ("negative", "positive"))
    >>> joined_texts([part, part]).texts
    ('good', 'good')
    """
    texts = tuple(text for part in parts for text in part.texts)
    seconds = tuple(text for part in parts for text in part.seconds)
    return Texts(texts, torch.cat([part.targets for part in parts]), parts[0].classes, seconds)


def chosen_texts(texts: Texts, rows: Sequence[int]) -> Texts:
    """The texts of the given rows, in the given order.

    >>> chosen_texts(Texts(("a", "b"), torch.tensor([0, 1]), ("no", "yes")), [1]).texts
    ('b',)
    """
    seconds = tuple(texts.seconds[row] for row in rows) if texts.seconds else ()
    return Texts(tuple(texts.texts[row] for row in rows), texts.targets[list(rows)], texts.classes, seconds)


TextSource = Callable[[str, Path | None], Texts]
"""From (split, root) to the texts of a set."""


def tokenized(
    source: TextSource,
    split: str,
    root: Path | None = None,
    *,
    tokens: Tokens | Literal["model"] = "words",
    vocab: int = 10_000,
    context: int = 256,
    pretrained: str | None = None,
) -> Examples:
    """Texts as rows of tokens, padded with 0 at the end.

    Args:
        source: gives the texts of a split; "words" takes its words from the split "train".
        split: of the set.
        root: see `sources.folders`.
        tokens: "words", "bytes", "gpt2", or "model" for the tokenizer of a pretrained model.
        vocab: numbers in all for "words": words, padding, unknown, and the border of two texts.
        context: tokens kept of each text; a pair's texts are joined before they are cut.
        pretrained: folder of the pretrained model, for "model" alone.

    >>> few = Texts(("good film", "bad"), torch.tensor([1, 0]), ("negative", "positive"))
    >>> tokenized(lambda split, root: few, "train").inputs  # 3 bad, 4 film, 5 good
    tensor([[5, 4],
            [3, 0]])
    """
    if context < 1:
        raise ValueError(f"context={context} must be >= 1")
    texts = source(split, root)
    if tokens == "model":
        from varlearn.data.pretrained_tokens import pretrained_tokens

        return pretrained_tokens(texts, pretrained, context)
    coder = _tokenizer(source, root, tokens, vocab, tuple(sources.folders(root)))
    rows = []
    for number, text in enumerate(texts.texts):
        row = [token + _FIRST for token in coder.encode(text)]
        if texts.seconds:
            row += [_BETWEEN, *(token + _FIRST for token in coder.encode(texts.seconds[number]))]
        rows.append(torch.tensor(row[:context] or [_FIRST]))
    inputs = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=_PADDING)
    return Examples(inputs, texts.targets, texts.classes, "text", vocab=coder.size + _FIRST)


@lru_cache(maxsize=8)
def _tokenizer(
    source: TextSource, root: Path | None, tokens: Tokens, vocab: int, places: tuple[Path, ...]
) -> Tokenizer:
    """The tokenizer of a set; where its files are looked for is part of the key."""
    training: tuple[str, ...] = ()
    if tokens == "words":
        train = source("train", root)
        training = train.texts + train.seconds
    return tokenizer(tokens, training, vocab - _FIRST, root)


def labelled(
    rows: list[list[str]],
    classes: tuple[str, ...],
    n: int,
    source: object,
    *,
    label: int = 0,
    text: int = 1,
    second: int | None = None,
) -> Texts:
    """Texts from the rows of a table whose labels are the classes' numbers.

    Args:
        rows: the table.
        classes: names by number.
        n: rows that there must be.
        source: file, for messages.
        label: column of the label.
        text: column of the text.
        second: column of the second text.
    """
    if len(rows) != n:
        raise CorruptDataError(f"{source} holds {len(rows):,} texts, not {n:,}; put the original there")
    try:
        targets = torch.tensor([int(row[label]) for row in rows])
    except ValueError as error:
        raise CorruptDataError(f"{source} has a label that is no number ({error}); put the original there") from None
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= len(classes):
        raise CorruptDataError(f"{source} has labels {low} .. {high}, not 0 .. {len(classes) - 1}")
    seconds = tuple(row[second] for row in rows) if second is not None else ()
    return Texts(tuple(row[text] for row in rows), targets, classes, seconds)
