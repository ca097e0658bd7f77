"""Arrays of MATLAB files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from varlearn.data.errors import CorruptDataError, MissingDataError


def matlab(path: Path, *names: str) -> dict[str, Any]:
    """The named arrays of a .mat file, with scipy."""
    try:
        from scipy.io import loadmat
    except ImportError:
        raise MissingDataError(f"reading {path} needs scipy, which is not there; pip install scipy") from None
    try:
        content = loadmat(path, variable_names=list(names))
        return {name: content[name] for name in names}
    except (ValueError, KeyError, TypeError, OSError, NotImplementedError) as error:
        raise CorruptDataError(f"{path} has no readable {' and '.join(names)} ({error}); fetch it again") from error
