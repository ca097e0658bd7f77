"""The committed page and the committed counts fit."""

from soak import page, results
from soak.parts import PARTS


def test_the_page_shows_the_counts_on_disk() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.fill(text) == text, "run python -m soak.page"


def test_committed_counts_are_of_parts_that_exist_and_add_up() -> None:
    """A broken promise is shown in the table: nothing is left out because it failed."""
    for path in results.FOLDER.glob("*.json"):
        found = results.read(results.FOLDER, path.stem)
        assert found is not None
        assert path.stem in PARTS
        for count in ("done", "broken"):
            assert found[count] == sum(kind[count] for kind in found["kinds"].values())
