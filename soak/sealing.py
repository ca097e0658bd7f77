"""Sealed files taken apart and put together again, with the right checksum over wrong content."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

_BLANK = "0" * 64


def taken_apart(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """The tensors' descriptions, the metadata without checksum, and the tensors' bytes."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    metadata = json.loads(header.pop("__metadata__")["varlearn"])
    del metadata["sha256"]
    return header, metadata, data[8 + size :]


def put_together(header: Any, metadata: Any, tensors: bytes) -> bytes:
    """A file whose checksum fits, whatever it holds."""

    def file(checksum: str) -> bytes:
        inside = {**metadata, "sha256": checksum} if isinstance(metadata, dict) else metadata
        described = {"__metadata__": {"varlearn": json.dumps(inside)}}
        head = json.dumps({**described, **header} if isinstance(header, dict) else header).encode()
        head += b" " * (-len(head) % 8)
        return struct.pack("<Q", len(head)) + head + tensors

    return file(hashlib.sha256(file(_BLANK)).hexdigest())


def sealed_document(values: Any) -> bytes:
    """A JSON document whose checksum fits."""
    if not isinstance(values, dict):
        return json.dumps(values).encode()
    text = json.dumps({**values, "sha256": _BLANK}, indent=2) + "\n"
    return text.replace(_BLANK, hashlib.sha256(text.encode()).hexdigest()).encode()
