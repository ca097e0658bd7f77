"""Texts as numbers: bytes, words by frequency, or GPT-2's byte pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

Tokens = Literal["bytes", "words", "gpt2"]

_WORD = re.compile(r"<unk>|\w+(?:['’]\w+)?|[^\w\s]|\n")


class Tokenizer(Protocol):
    """From a text to numbers below `size`, and back as far as that is possible."""

    @property
    def size(self) -> int:
        """Number of different tokens."""
        ...

    def encode(self, text: str) -> list[int]:
        """The text's tokens."""
        ...

    def decode(self, tokens: Iterable[int]) -> str:
        """The tokens' text."""
        ...


@dataclass(frozen=True)
class Bytes:
    """The bytes of the text in UTF-8.

    >>> Bytes().encode("aé"), Bytes().decode([97, 195, 169])
    ([97, 195, 169], 'aé')
    """

    size: int = 256

    def encode(self, text: str) -> list[int]:
        """One number per byte."""
        return list(text.encode("utf-8"))

    def decode(self, tokens: Iterable[int]) -> str:
        """The text; bytes that are no UTF-8, as at a cut, become the replacement character."""
        return bytes(tokens).decode("utf-8", errors="replace")


@dataclass(frozen=True)
class Words:
    """The most frequent words of a training text, in lower case, punctuation and line ends apart; 0 is any other word.

    >>> words = Words.of(["the cat, the dog"], size=3)
    >>> words.names, words.encode("The bird, the")
    (('<unk>', 'the', ','), [1, 0, 2, 1])
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str], size: int) -> Words:
        """The size - 1 most frequent words; of equally frequent ones, the first in the alphabet."""
        if size < 2:
            raise ValueError(f"vocab={size} must be at least 2: one word, and one number for all others")
        counts = Counter(word for text in texts for word in _WORD.findall(text.lower()))
        counts.pop("<unk>", None)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(("<unk>", *ranked[: size - 1]))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.names)}

    @property
    def size(self) -> int:
        """Number of words, "<unk>" among them."""
        return len(self.names)

    def encode(self, text: str) -> list[int]:
        """One number per word."""
        numbers = self._numbers
        return [numbers.get(word, 0) for word in _WORD.findall(text.lower())]

    def decode(self, tokens: Iterable[int]) -> str:
        """The words with spaces between them."""
        return " ".join(self.names[token] for token in tokens)


def tokenizer(tokens: Tokens, training: Iterable[str], vocab: int, root: Path | None) -> Tokenizer:
    """The tokenizer of a name.

    Args:
        tokens: "bytes", "words" or "gpt2".
        training: texts that "words" takes its words from; not read otherwise.
        vocab: number of words, for "words".
        root: where GPT-2's merges are looked for, see `sources.folders`.
    """
    if tokens == "bytes":
        return Bytes()
    if tokens == "words":
        return Words.of(training, vocab)
    if tokens == "gpt2":
        from varlearn.data.bpe import gpt2

        return gpt2(root)
    raise ValueError(f"tokens={tokens!r} must be bytes, words or gpt2")
