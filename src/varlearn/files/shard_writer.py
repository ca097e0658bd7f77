"""Writing a safetensors file tensor by tensor, whole or not at all, with its checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from varlearn.core.tensor_bytes import raw_bytes
from varlearn.files.atomic import replacing, writing
from varlearn.files.tensor_file import DTYPE_NAMES

Described = tuple[str, torch.dtype, torch.Size]


def write_shard(
    path: Path,
    tensors: Sequence[Described],
    pieces: Iterable[tuple[str, Iterator[Tensor]]],
    metadata: Mapping[str, str],
) -> str:
    """Write the file from pieces of its tensors, and return its SHA-256.

    Args:
        path: where; an existing file is replaced at the end.
        tensors: name, dtype and shape, in the order of the file.
        pieces: for each name in the same order, its entries in parts.
        metadata: of the header.

    >>> import tempfile
    >>> from safetensors.torch import load_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     described = [("w", torch.float32, torch.Size([2, 2]))]
    ...     parts = [("w", iter([torch.ones(3), torch.zeros(1)]))]
    ...     _ = write_shard(Path(folder, "w.safetensors"), described, parts, {"format": "pt"})
    ...     load_file(f"{folder}/w.safetensors")
    {'w': tensor([[1., 1.],
            [1., 0.]])}
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name, dtype, shape in tensors:
        start, end = end, end + shape.numel() * dtype.itemsize
        header[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # data start at a multiple of 8, as safetensors writes them
    digest = hashlib.sha256()
    with writing(path), replacing(path) as temporary, open(temporary, "xb") as file:

        def put(content: bytes | memoryview) -> None:
            file.write(content)
            digest.update(content)

        put(len(text).to_bytes(8, "little") + text)
        for (wanted, dtype, shape), (name, parts) in zip(tensors, pieces, strict=True):
            assert name == wanted
            count = 0
            for part in parts:
                put(raw_bytes(part.to(dtype)))
                count += part.numel()
            assert count == shape.numel(), f"{name}: {count} of {shape.numel()} entries"
    return digest.hexdigest()
