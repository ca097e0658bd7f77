"""Files that claim much, made smaller: every reader refuses or reads each of them."""

import pytest

from soak import bombs


@pytest.mark.parametrize("number", range(len(bombs.all_cases())))
def test_a_file_that_claims_much_is_refused_or_read(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEYS", "DEEP", "DIGITS"):
        monkeypatch.setattr(bombs, name, 20_000)
    (outcome,) = bombs._in_this_process(range(number, number + 1), 0)
    assert outcome.kept, outcome.detail


def test_a_reader_that_takes_too_much_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bombs, "SECONDS", 0.0)
    (outcome,) = bombs._in_this_process(range(1), 0)
    assert "took" in outcome.detail
