"""Tensors and JSON metadata in one safetensors file, written whole or not at all, with a checksum over every byte.

The file is plain safetensors: an 8-byte length, a JSON header, the data. The header's `__metadata__` has one key only
("varlearn"; several keys would be written in random order): a JSON object with sorted keys, among them "sha256". It is
the SHA-256 of the file itself with these 64 characters replaced by zeros. Pickle is never involved.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from varlearn.files.atomic import replacing
from varlearn.files.formats import CorruptFileError

KEY = "varlearn"
_BLANK = "0" * 64
_CHUNK = 1 << 20
_CURE = "copy or write it again"


def write(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write the file under a temporary name in the same folder, flush it to disk, then rename it into place.

    Whatever goes wrong, `path` holds either the old file or the whole new one, and no temporary file is left.

    Args:
        path: where; an existing file is replaced.
        tensors: of any dtype and device, with names of your choice.
        metadata: what JSON can hold, without a key "sha256".

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(f"{folder}/x.safetensors", {"a": torch.ones(2)}, {"kind": "example"})
    ...     read(f"{folder}/x.safetensors")
    ({'a': tensor([1., 1.])}, {'kind': 'example'})
    """
    path = Path(path)
    text = json.dumps({**metadata, "sha256": _BLANK}, sort_keys=True, allow_nan=False)
    with replacing(path) as temporary:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        save_file(_apart(tensors), temporary, metadata={KEY: text})
        temporary.chmod(mode)  # safetensors makes a file that nobody else can read, whatever the umask says
        with open(temporary, "r+b") as file:
            _seal(file)


def read(path: str | os.PathLike[str], device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Check the file against its checksum and return (tensors, metadata).

    Raises:
        CorruptFileError: if any bit differs from what was written.
    """
    metadata = verify(Path(path))
    try:
        return load_file(path, device=str(device)), metadata
    except SafetensorError as error:
        raise CorruptFileError(f"{path} has the right checksum but is no safetensors ({error}); {_CURE}") from error


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous CPU tensors that share no memory, which safetensors refuses to write."""
    out: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        if value.untyped_storage().data_ptr() in seen:
            value = value.clone()
        seen.add(value.untyped_storage().data_ptr())
        out[name] = value
    return out


def _seal(file: BinaryIO) -> None:
    """Put the checksum where the zeros are."""
    length, header = _header(file)
    if header.count(_BLANK.encode()) != 1:
        raise ValueError(
            "64 zeros in a row in a tensor's name or the metadata; they mark the checksum, rename that one"
        )
    digest = _digest(length, header, file)
    file.seek(len(length) + header.index(_BLANK.encode()))
    file.write(digest.encode())
    file.flush()


def verify(path: Path) -> dict[str, Any]:
    """Check the file against its checksum, in parts, and return its metadata.

    Raises:
        CorruptFileError: if any bit differs from what was written.
    """
    with open(path, "rb") as file:
        try:
            length, header = _header(file)
            metadata = json.loads(json.loads(header.decode("utf-8"))["__metadata__"][KEY])
            claimed = metadata.pop("sha256")
            if not isinstance(claimed, str) or len(claimed) != len(_BLANK):
                raise ValueError("sha256 is not 64 characters")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptFileError(f"{path} has no readable varlearn header ({error!r}); {_CURE}") from error
        actual = _digest(length, header.replace(claimed.encode(), _BLANK.encode()), file)
    if actual != claimed:
        raise CorruptFileError(f"{path} has SHA-256 {actual}, but was written with {claimed}: it is damaged; {_CURE}")
    return metadata


def _header(file: BinaryIO) -> tuple[bytes, bytes]:
    length = file.read(8)
    size = int.from_bytes(length, "little")
    if len(length) < 8 or size > os.fstat(file.fileno()).st_size:
        raise ValueError(f"a header of {size} bytes does not fit into the file")
    return length, file.read(size)


def _digest(length: bytes, header: bytes, file: BinaryIO) -> str:
    """SHA-256 of length and header as given and of the rest of the file."""
    digest = hashlib.sha256(length + header)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
