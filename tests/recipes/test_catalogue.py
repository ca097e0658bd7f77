"""All recipes together."""

import math

import pytest

from varlearn.methods import METHODS
from varlearn.recipes import names, recipe
from varlearn.train.config import from_json, to_json


@pytest.mark.parametrize("scale", ["paper", "small"])
def test_every_recipe_is_a_run_of_that_name_scale_and_seed(scale: str) -> None:
    for name in names():
        run = recipe(name, scale, seed=3)  # type: ignore[arg-type]
        assert (run.recipe, run.scale, run.seed) == (name, scale, 3)
        assert name.endswith(run.optim.name)
        assert from_json(to_json(run)) == run
        clipped = getattr(run.optim, "clip_radius", math.inf) < math.inf
        assert not (clipped and run.optim.rescale_lr)  # of which IVON warns


def test_every_pair_of_table_and_method_is_there() -> None:
    methods = {name: {n.removeprefix(f"{name}-") for n in names() if n.startswith(f"{name}-")} for name in FAMILIES}
    assert methods.pop("digits") == set(METHODS)
    further = {
        "cifar10-resnet20": {"sgd", "adahessian"},
        "cifar100-preresnet110": {"sgd", "adahessian"},
        "gpt2-773m": set(),
    }
    assert methods == {name: {"adamw", "ivon"} | further.get(name, {"sgd"}) for name in FAMILIES[1:]}


FAMILIES = ["digits", "cifar10-resnet20", "cifar100-preresnet110", "imagenet-resnet50", "ag_news-gru", "gpt2-773m"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cifar10-resnet2-ivon",), "'cifar10-resnet2-ivon' is not a recipe; did you mean cifar10-resnet20-ivon"),
        (("qqqqqqqqqqqqqq",), "'qqqqqqqqqqqqqq' is not a recipe; varlearn list shows them"),
        (("digits-ivon", "large"), "scale='large' must be 'paper' or 'small'"),
        (("digits-ivon", "small", -1), "seed=-1 must be a whole number >= 0"),
        (("digits-ivon", "small", 0.5), "seed=0.5 must be a whole number >= 0"),
    ],
)
def test_what_is_refused(arguments: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        recipe(*arguments)
