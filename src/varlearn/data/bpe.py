"""GPT-2's tokens: byte pair encoding (Sennrich et al., 2016) over bytes, with the published list of merges.

A text is cut into words with their leading space, numbers, punctuation and white space. Each piece starts as its bytes,
and neighbours are merged in the order of the list. The numbers follow from the list alone: 256 bytes, one per merge,
and <|endoftext|>.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from varlearn.data import sources
from varlearn.data.errors import CorruptDataError
from varlearn.data.sources import Published

MERGES = Published(
    "gpt2/vocab.bpe",
    "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe",
    "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
)

_REMEMBERED = 1 << 20  # words whose tokens are kept

# The bytes that print as themselves come first, in their order; the list of merges writes the others as U+0100 and on.
_PRINTING = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTING)]
_BYTE_ORDER = _PRINTING + _OTHERS
_BYTE_OF = {chr(byte): byte for byte in _PRINTING} | {chr(256 + k): byte for k, byte in enumerate(_OTHERS)}


class BytePairs:
    """Byte pair encoding with a given list of merges.

    Args:
        merges: pairs of byte strings, the first to be merged first.

    Attributes:
        pieces: the bytes of each token, by number.

    >>> pairs = BytePairs([(b"a", b"b"), (b"ab", b"ab")])
    >>> pairs.encode("abab ab"), pairs.size
    ([257, 220, 256], 259)
    >>> pairs.decode([257, 220, 256])
    'abab ab'
    """

    def __init__(self, merges: Iterable[tuple[bytes, bytes]]) -> None:
        pairs = list(merges)
        self._rank = {pair: rank for rank, pair in enumerate(pairs)}
        self.pieces = [bytes([byte]) for byte in _BYTE_ORDER] + [left + right for left, right in pairs]
        self._number = {piece: number for number, piece in enumerate(self.pieces)}
        self.pieces.append(b"<|endoftext|>")
        self._known: dict[str, list[int]] = {}

    @property
    def size(self) -> int:
        """Number of tokens: 256 bytes, the merges, and the end of a text."""
        return len(self.pieces)

    @property
    def end_of_text(self) -> int:
        """The token that stands between texts; `encode` never gives it."""
        return self.size - 1

    def encode(self, text: str) -> list[int]:
        """The text's tokens; no character has a special meaning."""
        tokens: list[int] = []
        for word in _words().findall(text):
            known = self._known.get(word)
            if known is None:
                known = self._merged(word.encode("utf-8"))
                if len(self._known) < _REMEMBERED:
                    self._known[word] = known
            tokens += known
        return tokens

    def decode(self, tokens: Iterable[int]) -> str:
        """The tokens' text; bytes that are no UTF-8, as at a cut, become the replacement character."""
        return b"".join(self.pieces[token] for token in tokens).decode("utf-8", errors="replace")

    def _merged(self, word: bytes) -> list[int]:
        parts = [bytes([byte]) for byte in word]
        while len(parts) > 1:
            pair = min(pairwise(parts), key=lambda pair: self._rank.get(pair, len(self._rank)))
            if pair not in self._rank:
                break
            merged, i = list[bytes](), 0
            while i < len(parts):
                together = (parts[i], parts[i + 1]) == pair if i + 1 < len(parts) else False
                merged.append(pair[0] + pair[1] if together else parts[i])
                i += 2 if together else 1
            parts = merged
        return [self._number[part] for part in parts]


def read_merges(path: Path) -> list[tuple[bytes, bytes]]:
    """The pairs of a file like GPT-2's `vocab.bpe`: a line "#version", then two pieces per line."""
    pairs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("#version") or not line:
            continue
        try:
            left, right = (bytes(_BYTE_OF[character] for character in piece) for piece in line.split(" "))
        except (ValueError, KeyError):
            raise CorruptDataError(f"{path} line {number} is {line!r}, not two pieces; fetch it again") from None
        pairs.append((left, right))
    return pairs


def gpt2(root: Path | None = None) -> BytePairs:
    """GPT-2's own 50,257 tokens, from `gpt2/vocab.bpe` or downloaded."""
    path = sources.published(MERGES, root)
    return _gpt2(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _gpt2(path: Path, modified: int) -> BytePairs:
    return BytePairs(read_merges(path))


@lru_cache(maxsize=1)
def _words() -> re.Pattern[str]:
    """GPT-2's cut into words; `re` knows no Unicode categories, so letters are word characters but numbers and "_"."""
    space = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
    rare = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in ("Nl", "No"))
    letter, number, other = rf"[^\W\d_{rare}]", rf"[\d{rare}]", rf"(?:[^\w{space}]|_)"
    return re.compile(
        rf"'s|'t|'re|'ve|'m|'ll|'d| ?{letter}+| ?{number}+| ?{other}+|[{space}]+(?![^{space}])|[{space}]+"
    )
