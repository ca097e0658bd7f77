"""The page in Chromium: nothing is asked for, nothing complained of, nothing overflows. Skipped without chromium."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tools.browser import Browser, browser, missing
from varlearn.report import read_run, write_report

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(params=[1, 15])
def page(folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Of one run, and of 15 runs with different settings."""
    run = read_run(folder)
    long = "a_long_name_of_a_run_that_does_not_want_to_wrap_anywhere_at_all"
    runs = [
        replace(run, name=f"{long}-{lr}", config={**run.config, "optim": {"name": "ivon", "lr": lr}})
        for lr in range(request.param)
    ]
    return write_report(runs, tmp_path / "out")


@pytest.mark.parametrize("width", [1200, 400])
def test_nothing_overflows_is_asked_for_or_complained_of(window: Browser, page: Path, width: int) -> None:
    window.open(page, width)
    assert window.ask("document.documentElement.scrollWidth") == width
    asked = [one for one in window.requests() if not one.startswith(("data:", "chrome:", "chrome-untrusted:"))]
    assert asked == [page.resolve().as_uri()]
    assert window.messages() == []
    assert window.ask("document.querySelectorAll('script').length") == 0


def test_the_nll_is_visible_on_a_phone(window: Browser, page: Path) -> None:
    window.open(page, 400)
    header = "[...document.querySelectorAll('thead th')].find(cell => cell.textContent == 'NLL')"
    assert 0 < window.ask(f"{header}.getBoundingClientRect().right") <= 400
    assert window.ask(f"{header}.closest('table').rows[1].cells[1].getBoundingClientRect().right") <= 400


def test_every_drawing_has_a_name_and_a_size(window: Browser, page: Path) -> None:
    window.open(page, 400)
    drawings = "[...document.querySelectorAll('svg, img')]"
    assert window.ask(f"{drawings}.length") >= 6
    assert window.ask(f"{drawings}.every(one => one.getAttribute('aria-label') || one.alt)")
    assert window.ask(f"{drawings}.every(one => one.getBoundingClientRect().height > 20)")
    assert window.ask("[...document.querySelectorAll('a')].every(one => document.querySelector(one.hash))")


def test_the_theme_follows_the_system(window: Browser, page: Path) -> None:
    colors = []
    for dark in (False, True):
        window.open(page, 1200, dark=dark)
        line = "getComputedStyle(document.querySelector('.plot > .line.c0')).stroke"
        colors.append((window.ask("getComputedStyle(document.body).backgroundColor"), window.ask(line)))
    assert colors == [("rgb(255, 255, 255)", "rgb(31, 95, 196)"), ("rgb(20, 23, 27)", "rgb(116, 169, 255)")]
