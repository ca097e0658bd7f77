"""The run of the demo, for every method."""

import pytest

from varlearn import presets
from varlearn.methods import METHODS
from varlearn.recipes import digits


@pytest.mark.parametrize("name", METHODS)
def test_all_methods_have_the_same_run_but_for_their_settings(name: str) -> None:
    run, other = digits(name, seed=2), digits("sgd", seed=2)
    assert (run.recipe, run.optim.name) == (f"digits-{name}", name)
    assert (run.model, run.data, run.train, run.evaluate) == (other.model, other.data, other.train, other.evaluate)


def test_ivon_takes_the_preset_at_its_best_learning_rate() -> None:
    expected = presets.short_run(n=1_000, steps=1_200) | {"lr": 1.0}
    beta1, beta2 = expected.pop("betas")
    optim = digits("ivon").optim
    assert (optim.beta1, optim.beta2) == (beta1, beta2)
    assert {name: getattr(optim, name) for name in expected} == expected


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"optim.name='ivn' must be one of ivon, adamw, sgd, .*; did you mean 'ivon'\?"
    ):
        digits("ivn")
