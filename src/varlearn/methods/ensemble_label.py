"""What tables call an ensemble."""

from __future__ import annotations

from collections import Counter

from varlearn.methods.method_table import METHODS


def label_of_members(methods: tuple[str, ...]) -> str:
    """A deep ensemble is made of points, Multi-IVON of IVON's Gaussians.

    >>> label_of_members(("sgd", "sgd")), label_of_members(("ivon",) * 5), label_of_members(("sgd", "ivon", "ivon"))
    ('Deep ensemble of 2 x SGD', 'Multi-IVON of 5', 'Mixture of SGD, 2 x IVON')
    """
    counts = Counter(methods)
    if len(counts) > 1:
        parts = [f"{count} x {_label(name)}" if count > 1 else _label(name) for name, count in counts.items()]
        return f"Mixture of {', '.join(parts)}"
    name = methods[0]
    if name in METHODS and not METHODS[name].averages:
        return f"Deep ensemble of {len(methods)} x {_label(name)}"
    return f"Multi-{_label(name)} of {len(methods)}"


def line_label(method: str) -> str:
    """A line's method as tables write it: "ivon@mean", or "5*sgd" for an ensemble.

    >>> line_label("ivon@mean"), line_label("5*sgd"), line_label("5*ivon")
    ('IVON@mean', 'Deep ensemble of 5 x SGD', 'Multi-IVON of 5')
    """
    count, star, name = method.rpartition("*")
    if star:
        return label_of_members((name,) * int(count))
    trained, at, place = method.partition("@")
    return f"{_label(trained)}{at}{place}"


def _label(name: str) -> str:
    return METHODS[name].label if name in METHODS else name
