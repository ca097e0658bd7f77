"""Reading a safetensors file in parts of tensors, so that memory holds what is asked for and no more."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from varlearn.files.formats import CorruptFileError
from varlearn.files.sealed import KEY, verify

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LONGEST_HEADER = 100_000_000  # the format's own limit
_CURE = "copy or download it again"


class Entry(NamedTuple):
    """Where a tensor is in its file."""

    dtype: torch.dtype
    shape: torch.Size
    offset: int


class TensorFile:
    """A safetensors file whose header has been read and agrees with the size of the file.

    The file is not mapped into memory: pages of a mapping would count as memory of the process.

    Args:
        path: of the file.

    Raises:
        CorruptFileError: if it is truncated, or its header does not describe it.

    >>> import tempfile
    >>> from safetensors.torch import save_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_file({"w": torch.arange(6.0).view(2, 3)}, f"{folder}/w.safetensors")
    ...     file = TensorFile(Path(folder, "w.safetensors"))
    ...     file.entries["w"].shape, file.read("w", 2, 4)
    (torch.Size([2, 3]), tensor([2., 3.]))
    """

    def __init__(self, path: Path):
        self.path = path
        self.size = path.stat().st_size
        try:
            header, start = self._header()
            self.metadata: Mapping[str, str] = header.pop("__metadata__", {})
            self.entries = {name: _entry(name, one, start) for name, one in header.items()}
            self._check_places(header, start)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptFileError(f"{path} is no whole safetensors file: {error}; {_CURE}") from error

    def _header(self) -> tuple[dict[str, Any], int]:
        with open(self.path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(self.size - 8, _LONGEST_HEADER):
                raise ValueError(f"a header of {length:,} bytes does not fit into {self.size:,} bytes")
            return json.loads(file.read(length)), 8 + length

    def _check_places(self, header: Mapping[str, Any], start: int) -> None:
        end = 0
        for name, (first, last) in sorted(
            ((name, one["data_offsets"]) for name, one in header.items()), key=lambda item: item[1]
        ):
            entry = self.entries[name]
            wanted = math.prod(entry.shape) * entry.dtype.itemsize
            if first != end or last - first != wanted:
                raise ValueError(f"{name!r} takes bytes {first:,} to {last:,}, and must take {wanted:,} from {end:,}")
            end = last
        if start + end != self.size:
            raise ValueError(f"it has {self.size:,} bytes, and its header describes {start + end:,}")

    @property
    def sealed(self) -> bool:
        """Whether the file carries a checksum of ours."""
        return KEY in self.metadata

    def verify(self) -> None:
        """Compare the file with its checksum, if it has one."""
        if self.sealed:
            verify(self.path)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """The entries from start to stop of a tensor, in the order of the file."""
        dtype, shape, offset = self.entries[name]
        count = shape.numel()
        stop = count if stop is None else min(stop, count)
        if stop <= start:
            return torch.empty(0, dtype=dtype)
        buffer = bytearray((stop - start) * dtype.itemsize)
        view, done = memoryview(buffer), 0
        with open(self.path, "rb", buffering=0) as file:
            file.seek(offset + start * dtype.itemsize)
            while done < len(buffer):
                got = file.readinto(view[done:])
                if not got:
                    raise CorruptFileError(f"{self.path} ended within {name!r}; {_CURE}")
                done += got
        return torch.frombuffer(buffer, dtype=dtype)


def _entry(name: str, one: Mapping[str, Any], start: int) -> Entry:
    if one["dtype"] not in DTYPES:
        raise ValueError(f"{name!r} has the dtype {one['dtype']!r}, and must have one of {', '.join(DTYPES)}")
    return Entry(DTYPES[one["dtype"]], torch.Size(one["shape"]), start + int(one["data_offsets"][0]))


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, read in parts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a").write_text("abc")
    ...     file_sha256(Path(folder, "a"))[:8]
    'ba7816bf'
    """
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
