"""The committed page and the committed counts fit."""

from soak import page, results
from soak.parts import PARTS


def test_the_page_shows_the_counts_on_disk() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.fill(text) == text, "run python -m soak.page"


def test_committed_counts_are_of_parts_that_exist_and_kept_their_promises() -> None:
    for path in results.FOLDER.glob("*.json"):
        found = results.read(results.FOLDER, path.stem)
        assert found is not None
        assert results.kept(PARTS[path.stem], found), f"{path.name} has broken cases; see its details"
