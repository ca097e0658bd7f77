"""The package's names: listed, documented, each with an example."""

import pkgutil

import pytest

from varlearn import metrics

MODULES = {module.name for module in pkgutil.iter_modules(metrics.__path__)}


def test_all_lists_every_public_name_once_in_order() -> None:
    public = {n for n in vars(metrics) if not n.startswith("_")} - MODULES
    assert set(metrics.__all__) == public | {"agreement"}  # the function named as its module
    assert metrics.__all__ == sorted(set(metrics.__all__))


@pytest.mark.parametrize("name", metrics.__all__)
def test_every_name_has_an_example(name: str) -> None:
    assert ">>>" in (getattr(metrics, name).__doc__ or "")
