"""Import paths of version 0.1 that have moved: they work for one more version and say where the names are now."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any


def forwarding(old: str, new: ModuleType) -> Callable[[str], Any]:
    """A `__getattr__` for the old module that takes names from the new one, with a DeprecationWarning.

    Args:
        old: the path that users may have imported.
        new: the module or package that has its names now.

    >>> from varlearn.files import atomic
    >>> lookup = forwarding("varlearn.old", atomic)
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     function = lookup("write_text")
    >>> print(said[0].message)
    varlearn.old goes with version 0.3; import write_text from varlearn.files.atomic
    """

    def lookup(name: str) -> Any:
        if name.startswith("__") or not hasattr(new, name):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        where = new.__name__
        warnings.warn(f"{old} goes with version 0.3; import {name} from {where}", DeprecationWarning, stacklevel=2)
        return getattr(new, name)

    return lookup
