"""The recipes of recurrent networks."""

import pytest

from varlearn import presets
from varlearn.recipes.text_classification import text


@pytest.mark.parametrize(
    ("data", "examples", "classes"), [("cola", 8_551, 2), ("imdb", 25_000, 2), ("ag_news", 120_000, 4)]
)
def test_the_whole_set_at_the_papers_scale(data: str, examples: int, classes: int) -> None:
    run = text(data, "ivon", "paper")
    assert (run.data.name, run.data.subset, run.model.name, run.model.classes) == (data, None, "gru", classes)
    assert (run.data.tokens, run.data.augment) == ("words", False)
    assert run.optim.ess == presets.short_run(n=examples, steps=1, like="adamw")["ess"]


def test_beta2_knows_the_steps() -> None:
    run = text("cola", "ivon", "small")
    assert run.optim.beta2 == pytest.approx(1 - 1 / (5 * 160))  # 5 epochs of 8,000 in batches of 50


def test_another_set_is_refused() -> None:
    with pytest.raises(
        ValueError, match="sst2 is not in the paper's table of recurrent networks; choose one of cola, imdb"
    ):
        text("sst2", "ivon")
