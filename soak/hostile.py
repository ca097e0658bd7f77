"""Values that a reader may not expect, put anywhere into a JSON document."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, -(2**63) - 1, 10**12, 10**400, 0.5, -0.0, 1e308, 5e-324,
    float("nan"), float("inf"), "", "x", "nan", "-inf", "1e999", "mean", "test", "ivon", "Mixture", "tuple", "\0",
    "\ud800", "ä", "0" * 64, "f" * 64, "a" * 8, "x" * 5000, "/etc/passwd", "../../x", "__class__", "__import__('os')",
    "$\\frac{", "<script>", "%s%n{0}", [], {}, [[]], {"": {}}, [None] * 200, {"": "dict", "items": [[[], 1]]},
    {"": "tensor", "name": "x", "stride": [10**12]}, {"": "float", "value": []}, {"": "tuple", "items": 3},
)  # fmt: skip


def deep(depth: int, random: Random) -> Any:
    """Lists or objects in each other."""
    value: Any = 0
    for _ in range(depth):
        value = [value] if random.random() < 0.5 else {"items": value, "": "tuple"}
    return value


def value(random: Random) -> Any:
    """One hostile value; seldom a deep or a wide one."""
    draw = random.random()
    if draw < 0.01:
        return deep(random.choice((10, 60)), random)
    if draw < 0.02:
        return dict.fromkeys(map(str, range(2000)), 0)
    return copy.deepcopy(random.choice(VALUES))


def changed(document: Any, random: Random) -> Any:
    """A copy of a JSON document with one to three hostile edits."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 2, 3))):
        places = list(_places(document))
        if not places:
            return value(random)
        container, key = random.choice(places)
        _edit(container, key, random, places)
    return document


def _edit(container: Any, key: Any, random: Random, places: list[tuple[Any, Any]]) -> None:
    draw = random.random()
    if draw < 0.55:
        container[key] = value(random)
    elif draw < 0.7:
        del container[key]
    elif draw < 0.8:  # what stands in another place
        other, place = random.choice(places)
        if place in other if isinstance(other, dict) else place < len(other):
            container[key] = copy.deepcopy(other[place])
    elif isinstance(container, dict):
        name = str(value(random))[:100] if random.random() < 0.5 else random.choice(list(container))
        container[name] = container.pop(key) if draw < 0.9 else copy.deepcopy(container[key])
    else:
        container.insert(key, copy.deepcopy(container[key]))


def _places(document: Any) -> Any:
    """(container, key) of every value below the document."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, item in list(items):
        yield document, key
        if isinstance(item, (dict, list)):
            yield from _places(item)
