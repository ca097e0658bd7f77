"""Complete runs named after the paper's tables and figures, and what those tables say.

A recipe is a function that returns a frozen `Run`; a variant replaces fields of it:

    run = recipes.recipe("cifar10-resnet20-ivon", scale="paper", seed=1)
    colder = replace(run, optim=replace(run.optim, ess=5e5))
"""

from varlearn.recipes.catalogue import names, recipe
from varlearn.recipes.digits_mlp import digits
from varlearn.recipes.glue_finetuning import glue
from varlearn.recipes.images import image
from varlearn.recipes.pretraining import language
from varlearn.recipes.sentiment_finetuning import sentiment
from varlearn.recipes.text_classification import text

__all__ = ["digits", "glue", "image", "language", "names", "recipe", "sentiment", "text"]
