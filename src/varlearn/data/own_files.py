"""Files of one's own for language modelling: text, or tokens that are numbers already.

A name with "{split}" in it stands for one file per split, "corpus/{split}.txt". Of a file without, the last tenth is
the split "test" and the rest "train".
"""

from __future__ import annotations

from pathlib import Path

import torch

from varlearn.data.errors import CorruptDataError, MissingDataError
from varlearn.data.examples import Examples
from varlearn.data.imageset import check_split

GPT2_TOKENS = 50_257


def text_file(name: str, split: str) -> str:
    """A split of a text in UTF-8.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "mine.txt").write_text("0123456789")
    ...     text_file(f"{folder}/mine.txt", "train"), text_file(f"{folder}/mine.txt", "test")
    ('012345678', '9')
    """
    path = _path(name, split)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CorruptDataError(f"{path} must be text in UTF-8, but {error}; convert it") from error
    return text[_part(name, split, len(text))]


def token_file(name: str, split: str, root: Path | None = None) -> Examples:
    """A split of GPT-2 tokens, 16-bit little-endian numbers, mapped into memory and read as batches ask for them."""
    path = _path(name, split)
    size = path.stat().st_size
    if size == 0 or size % 2:
        raise CorruptDataError(f"{path} has {size:,} bytes, not two for each of one or more tokens; write it again")
    tokens = torch.from_file(str(path), shared=False, size=size // 2, dtype=torch.uint16)
    part = tokens[_part(name, split, len(tokens))]
    return Examples(part, torch.empty(0, dtype=torch.long), (), "tokens", vocab=GPT2_TOKENS)


def _path(name: str, split: str) -> Path:
    if "{split}" not in name:
        check_split(split, ("train", "test"))
    path = Path(name.replace("{split}", split)).expanduser()
    if not path.exists():
        raise MissingDataError(f"{path} does not exist; give the path of a file")
    if path.is_dir():
        raise CorruptDataError(f"{path} must be a file, not a directory")
    return path


def _part(name: str, split: str, n: int) -> slice:
    if "{split}" in name:
        return slice(None)
    cut = n * 9 // 10
    return slice(cut) if split == "train" else slice(cut, None)
