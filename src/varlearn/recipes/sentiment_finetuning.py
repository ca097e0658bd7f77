"""The runs behind the paper's Table 5: one network finetuned on sets of reviews that share their two classes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from varlearn.recipes.glue_finetuning import METHODS, glue
from varlearn.recipes.scales import Scale
from varlearn.train.config import Data, Evaluate, Run

BASE = "imdb"
CONTEXT, SMALL_CONTEXT, SMALL_STEPS = 384, 48, 100


@dataclass(frozen=True)
class ReviewSet:
    """A set of reviews.

    Attributes:
        data: name of the set.
        subset: the first so many training examples, as the experiments that the paper repeats had; None for all.
        small: name of what stands in for it at the small scale.
    """

    data: str
    subset: int | None
    small: str


SETS = {
    "imdb": ReviewSet("imdb", None, "imdb"),
    "yelp": ReviewSet("yelp_polarity", 112_000, "yelp-standin"),
    "rotten_tomatoes": ReviewSet("rotten_tomatoes", None, "rotten_tomatoes"),
    "sst2": ReviewSet("sst2", None, "sst2"),
    "amazon": ReviewSet("amazon_polarity", 180_000, "amazon-standin"),
}
"""By the order of the paper's columns. The base of all is the network finetuned on IMDB."""


def sentiment(data: str, optim: str, scale: Scale = "small", seed: int = 0) -> Run:
    """RoBERTa finetuned on reviews with the settings of GLUE: batches of 32, 10 epochs.

    For Table 5 the four sets other than IMDB start from the network that was finetuned on IMDB, with its last layer:
    `model.path` then is the folder of that network, which `varlearn export` writes. Texts are cut to 384 tokens. Of
    Yelp the first 112,000 reviews are learned from, of Amazon 180,000.

    At the small scale MiniLM, 100 steps and 48 tokens. Other reviews stand in for Yelp and Amazon there.

    Args:
        data: one of `SETS`.
        optim: "adamw", "ivon" or "vadamw".
        scale: "paper" or "small".
        seed: of the last layer's initialization, order of the data, dropout and noise.

    >>> run = sentiment("yelp", "ivon", scale="paper")
    >>> run.recipe, run.data.subset, run.optim.hess_init
    ('yelp-roberta-ivon', 112000, 1.0)
    """
    for what, given, known in (("data", data, SETS), ("optim", optim, METHODS)):
        if given not in known:
            raise ValueError(
                f"{what}={given!r} is not in the paper's table of merging; choose one of {', '.join(known)}"
            )
    like, facts, small = glue("sst2", "roberta", optim, scale, seed), SETS[data], scale == "small"
    return replace(
        like,
        recipe=f"{data}-roberta-{optim}",
        data=Data(
            name=facts.small if small else facts.data,
            subset=None if small else facts.subset,
            batch_size=like.data.batch_size,
            eval_batch_size=like.data.eval_batch_size,
            augment=False,
            context=SMALL_CONTEXT if small else CONTEXT,
            tokens="model",
            test="dev" if data == "sst2" else "test",
        ),
        train=replace(like.train, steps=SMALL_STEPS, eval_every=0) if small else like.train,
        evaluate=Evaluate(samples=4, subset=None) if small else like.evaluate,
    )


def from_base(run: Run, folder: str) -> Run:
    """The same run from another network, as a folder that `from_pretrained` reads.

    >>> from_base(sentiment("sst2", "ivon"), "runs/base").model.path
    'runs/base'
    """
    return replace(run, model=replace(run.model, path=folder))
