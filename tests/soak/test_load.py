"""The loads of the campaign, a thousandth to a fiftieth of their size."""

import pytest

from soak.load import LOADS, Load, measured
from varlearn import data


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.kind)
def test_a_small_load_is_right_and_within_its_bounds(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("load", "options_of"):
        monkeypatch.setattr(data, name, getattr(data, name))  # the runs replace them
    found = measured(load, max(20, load.size // 1000))
    assert found.kept, found.detail
