"""Nested dicts as flat ones: settings as "optim.lr", metrics as "ood.svhn.auroc", log records as "eval/nll"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flattened(values: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """The innermost values of nested mappings under their joined names, in order.

    >>> flattened({"nll": 0.5, "ood": {"svhn": {"auroc": 0.9}}})
    {'nll': 0.5, 'ood.svhn.auroc': 0.9}
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}{separator}{inner}": item for inner, item in flattened(value, separator).items()}
        else:
            flat[name] = value
    return flat
