"""What a sealed file says about itself: its format, its version, and entries of the right type.

A file can be undamaged and still not be one that varlearn wrote. The errors here name the file, the entry, its value,
the rule and the cure.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

CURE = "give a file that varlearn wrote, or write it again"


class CorruptFileError(ValueError):
    """A file whose bytes are not the ones that were written."""


class FileFormatError(ValueError):
    """An undamaged file that is not what it should be: another format, a later version, a malformed description."""


def check_format(
    path: str | os.PathLike[str], metadata: Mapping[str, Any], known: Mapping[str, Collection[int]], writer: str
) -> tuple[str, int]:
    """The file's (format, version), which must be among those that are known.

    Args:
        path: for messages.
        metadata: as `sealed.read` returns them.
        known: format -> versions that can be read; the first format is the one that is written today.
        writer: the function that writes such files.

    >>> check_format("x.safetensors", {"format": "a", "format_version": 3}, {"a": (1, 2)}, "save()")
    Traceback (most recent call last):
    ...
    varlearn.files.formats.FileFormatError: x.safetensors has format_version 3; this varlearn reads 1 and 2, update it
    """
    name, version = metadata.get("format"), metadata.get("format_version")
    if not isinstance(name, str) or name not in known:
        raise FileFormatError(
            f"{path} has format {shown(name)}, not {next(iter(known))!r}; give a file that {writer} wrote"
        )
    if not isinstance(version, int) or version not in known[name]:
        readable = " and ".join(map(str, known[name]))
        raise FileFormatError(f"{path} has format_version {shown(version)}; this varlearn reads {readable}, update it")
    return name, version


def entry(
    path: str | os.PathLike[str], description: Any, key: str, kind: type | tuple[type, ...], where: str = "metadata"
) -> Any:
    """`description[key]`, which must be there and of this type.

    >>> entry("x.safetensors", {"seed": None}, "seed", int)
    Traceback (most recent call last):
    ...
    varlearn.files.formats.FileFormatError: x.safetensors: metadata['seed'] is None and must be of type int; give a ...
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    wanted = " or ".join(one.__name__ for one in kinds)
    if not isinstance(description, Mapping):
        raise FileFormatError(f"{path}: {where} is {shown(description)} and must be a JSON object; {CURE}")
    if key not in description:
        raise FileFormatError(f"{path}: {where} has no entry {key!r}, which must be of type {wanted}; {CURE}")
    value = description[key]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise FileFormatError(f"{path}: {where}[{key!r}] is {shown(value)} and must be of type {wanted}; {CURE}")
    return value


@contextlib.contextmanager
def rebuilding(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn what goes wrong while a value is made from a file's entries into an error that names the file.

    >>> with rebuilding("x.safetensors", "a checkpoint"):
    ...     {}["step"]
    Traceback (most recent call last):
    ...
    varlearn.files.formats.FileFormatError: x.safetensors does not describe a checkpoint (KeyError: 'step'); give a ...
    """
    try:
        yield
    except FileFormatError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise FileFormatError(
            f"{path} does not describe {what} ({type(error).__name__}: {shown(error, quoted=False)}); {CURE}"
        ) from error


def shown(value: object, quoted: bool = True) -> str:
    """The value's text, cut after 200 characters: a hostile file may hold a very long one.

    >>> len(shown("x" * 1000))
    203
    """
    text = repr(value) if quoted else str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
