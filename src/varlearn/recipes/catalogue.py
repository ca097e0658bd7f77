"""Every recipe by its name."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial

from varlearn.methods import METHODS
from varlearn.recipes.bayesian_comparison import comparison
from varlearn.recipes.digits_mlp import digits
from varlearn.recipes.glue_finetuning import METHODS as GLUE_METHODS
from varlearn.recipes.glue_finetuning import NETWORKS, TASKS, glue
from varlearn.recipes.hmc_reference import reference_run
from varlearn.recipes.images import PAIRS, image, methods_of
from varlearn.recipes.in_between_regression import in_between_run
from varlearn.recipes.pretraining import MICRO, language
from varlearn.recipes.scales import Scale
from varlearn.recipes.sentiment_finetuning import SETS as REVIEW_SETS
from varlearn.recipes.sentiment_finetuning import sentiment
from varlearn.recipes.text_classification import SETS, text
from varlearn.train.config import Run

IN_TABLES = ("adamw", "sgd", "ivon")  # the methods of the paper's tables that have recipes
IN_FIGURE = ("adamw", "ivon")  # those of its figure of GPT-2


def _recipes() -> dict[str, Callable[..., Run]]:
    small = {f"digits-{method}": partial(digits, method) for method in METHODS}
    images = {
        f"{data}-{model}-{method}": partial(image, data, model, method)
        for data, model in PAIRS
        for method in methods_of(data)
    }
    texts = {f"{data}-gru-{method}": partial(text, data, method) for data in SETS for method in IN_TABLES}
    gpt2 = {f"gpt2-{size}-{method}": partial(language, size, method) for size in MICRO for method in IN_FIGURE}
    finetuned = {
        f"{task}-{network}-{method}": partial(glue, task, network, method)
        for task in TASKS
        for network in NETWORKS
        for method in GLUE_METHODS
    }
    reviews = {
        f"{data}-roberta-{method}": partial(sentiment, data, method)
        for data in REVIEW_SETS
        if data not in TASKS
        for method in GLUE_METHODS
    }
    compared = {f"comparison-resnet20-{method}": partial(comparison, method) for method in METHODS}
    reference = {f"hmc-resnet20_swish-{method}": partial(reference_run, method) for method in METHODS}
    between = {f"inbetween-mlp-{method}": partial(in_between_run, method) for method in METHODS}
    return {**small, **images, **texts, **gpt2, **finetuned, **compared, **reference, **between, **reviews}


def names() -> list[str]:
    """Names of all recipes, such as "cifar10-resnet20-ivon": data, network, method.

    >>> len(names()) > 100  # digits, 13 x 3 + 12 images, 3 x 3 texts, 3 x 2 GPT-2, 8 x 2 x 3 GLUE
    True
    """
    return list(_recipes())


def recipe(name: str, scale: Scale = "small", seed: int = 0) -> Run:
    """The complete run of a recipe.

    Args:
        name: one of `names()`.
        scale: "paper" for the paper's own setting, "small" for two cores and minutes.
        seed: of initialization, order of the data, augmentation and noise.

    >>> recipe("cifar10-resnet20-sgd", scale="paper").optim.lr
    0.1
    """
    recipes = _recipes()
    if name not in recipes:
        near = get_close_matches(name, recipes, n=3, cutoff=0.4)
        cure = f"did you mean {' or '.join(near)}?" if near else "varlearn list shows them"
        raise ValueError(f"{name!r} is not a recipe; {cure}")
    if scale not in ("paper", "small"):
        raise ValueError(f"scale={scale!r} must be 'paper' or 'small'")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ValueError(f"seed={seed!r} must be a whole number >= 0")
    return recipes[name](scale=scale, seed=seed)
