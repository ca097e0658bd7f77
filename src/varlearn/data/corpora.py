"""Texts for language modelling: tiny Shakespeare, the Brown corpus and WikiText-2."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch

from varlearn.data import prepared, sources
from varlearn.data.archive import zipped
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples
from varlearn.data.imageset import check_split
from varlearn.data.sources import Published
from varlearn.data.tokenizers import Tokens, tokenizer

TextOf = Callable[[str, Path | None], str]
"""From (split, root) to a text."""

_SHAKESPEARE = Published(
    "tinyshakespeare/input.txt",
    "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt",
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)
_BROWN = Published("brown.zip", "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/corpora/brown.zip")
_WIKITEXT2 = Published(
    "wikitext-2-v1.zip",
    "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
    "542ccefacc6c27f945fb54453812b3cd",
)
_SPLITS = ("train", "test")


def tinyshakespeare(split: str, root: Path | None = None) -> str:
    """1,115,394 characters of Shakespeare's plays; the last tenth is the test split."""
    check_split(split, _SPLITS)
    found = sources.find("text/tinyshakespeare.txt.xz", root)
    text = prepared.text(found) if found else sources.published(_SHAKESPEARE, root).read_text(encoding="utf-8")
    return _part(text, split)


def brown(split: str, root: Path | None = None) -> str:
    """The 500 documents of the Brown corpus without their tags; every tenth document is in the test split."""
    check_split(split, _SPLITS)
    found = sources.find("text/brown.txt.xz", root)
    if found:
        documents = prepared.text(found).strip("\n").split("\n\n")
    else:
        found = sources.published(_BROWN, root)
        documents = _brown_documents(found)
    if len(documents) != 500:
        raise CorruptDataError(f"{found} holds {len(documents)} documents, not 500; put the original there")
    held_out = split == "test"
    return "\n\n".join(text for k, text in enumerate(documents) if (k % 10 == 9) == held_out) + "\n"


def wikitext2(split: str, root: Path | None = None) -> str:
    """WikiText-2 as published, rare words being <unk>; split is train, valid or test."""
    check_split(split, ("train", "valid", "test"))
    found = sources.find(f"text/wikitext2_{split}.txt.xz", root)
    if found:
        return prepared.text(found)
    path = sources.published(_WIKITEXT2, root)
    return zipped(path, f"wikitext-2/wiki.{split}.tokens").decode("utf-8")


def stream(
    source: TextOf, split: str, root: Path | None = None, *, tokens: Tokens = "bytes", vocab: int = 10_000
) -> Examples:
    """A text as one stream of tokens.

    Args:
        source: gives the text of a split; "words" takes its words from the split "train".
        split: of the text.
        root: see `sources.folders`.
        tokens: "bytes", "words" or "gpt2".
        vocab: number of words, for "words".

    >>> stream(lambda split, root: "to be", "train", tokens="bytes").inputs
    tensor([116, 111,  32,  98, 101], dtype=torch.uint8)
    """
    text, vocabulary = source(split, root), 256
    if tokens == "bytes":
        inputs = torch.frombuffer(bytearray(text.encode("utf-8")), dtype=torch.uint8)
    else:
        coder = tokenizer(tokens, [source("train", root)] if tokens == "words" else [], vocab, root)
        inputs, vocabulary = torch.tensor(coder.encode(text), dtype=torch.int32), coder.size
    return Examples(inputs, torch.empty(0, dtype=torch.long), (), "tokens", vocab=vocabulary)


def _part(text: str, split: str) -> str:
    cut = len(text) * 9 // 10
    return text[:cut] if split == "train" else text[cut:]


def _brown_documents(path: Path) -> list[str]:
    """The 500 tagged files of the published archive, sentence by line, without the tags."""
    try:
        with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
            names = sorted(name for name in archive.namelist() if re.fullmatch(r"brown/c[a-r]\d\d", name))
            tagged = [archive.read(name).decode("utf-8") for name in names]
    except (zipfile.BadZipFile, OSError) as error:
        raise CorruptDataError(f"{path} is no readable zip archive ({error}); fetch it again") from error
    return ["\n".join(_untagged(line) for line in text.splitlines() if line.strip()) for text in tagged]


def _untagged(line: str) -> str:
    return " ".join(word.rpartition("/")[0] for word in line.split())
