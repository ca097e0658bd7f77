"""The tiny data set in place of all others."""

import pytest

from tests.train import tiny
from varlearn import data


@pytest.fixture
def tiny_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "load", tiny.load)
    monkeypatch.setattr(data, "options_of", tiny.options_of)
