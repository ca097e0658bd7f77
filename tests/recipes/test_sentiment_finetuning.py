"""The recipes of Table 5."""

import pytest

from varlearn.data.facts import TEXTS
from varlearn.recipes.glue_finetuning import glue
from varlearn.recipes.paper_comparisons import MERGED_TASKS
from varlearn.recipes.sentiment_finetuning import SETS, sentiment


@pytest.mark.parametrize("data", SETS)
def test_all_share_the_last_layer_and_the_settings_of_glue(data: str) -> None:
    run = sentiment(data, "ivon", "paper")
    like = glue("sst2", "roberta", "ivon", "paper")
    assert (run.model, run.optim, run.train) == (like.model, like.optim, like.train)
    assert len(TEXTS[run.data.name]) == run.model.classes == 2
    assert (run.data.context, run.data.batch_size) == (384, 32)


def test_the_sets_are_the_papers_in_its_order() -> None:
    assert tuple(SETS) == MERGED_TASKS
    small = [sentiment(data, "adamw").data.name for data in SETS]
    assert small == ["imdb", "yelp-standin", "rotten_tomatoes", "sst2", "amazon-standin"]
    assert sentiment("rotten_tomatoes", "adamw").data.subset is None  # it is sorted by class


@pytest.mark.parametrize(("data", "optim"), [("cola", "ivon"), ("ag_news", "ivon"), ("imdb", "sgd")])
def test_what_does_not_belong_is_refused(data: str, optim: str) -> None:
    with pytest.raises(ValueError, match="is not in the paper's table of merging"):
        sentiment(data, optim)
