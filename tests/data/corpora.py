"""Small corpora, and a list of merges to encode them with."""

import random
from pathlib import Path

import pytest

from tests.data.files import write
from varlearn.data import bpe
from varlearn.data.sources import Published

MERGES = [(b"t", b"h"), (b"th", b"e"), (b" ", b"the"), (b"a", b"n"), (b" ", b"an")]
WORDS = ["the", "an", "ân", "x" * 30, "foo's", "12", "\n", "  ", "漢字", "½", "don't"]
SEPARATOR = "<|endoftext|>"


def documents(count: int = 400, seed: int = 0) -> list[str]:
    source = random.Random(seed)
    return ["w " + " ".join(source.choice(WORDS) for _ in range(source.randrange(1, 200))) for _ in range(count)]


def text_of(texts: list[str]) -> bytes:
    return SEPARATOR.join(texts).encode()


def printed(piece: bytes) -> str:
    """A piece as vocab.bpe writes it."""
    characters = {byte: character for character, byte in bpe._BYTE_OF.items()}
    return "".join(characters[byte] for byte in piece)


def write_merges(path: Path) -> Path:
    lines = [f"{printed(left)} {printed(right)}" for left, right in MERGES]
    return write(path, "\n".join(["#version: 0.2", *lines, ""]).encode())


@pytest.fixture
def merges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small list of merges where GPT-2's is looked for."""
    monkeypatch.setattr(bpe, "MERGES", Published("gpt2/vocab.bpe", None))
    monkeypatch.setenv("VARLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VARLEARN_DATA", raising=False)
    return write_merges(tmp_path / "cache" / "gpt2" / "vocab.bpe")
