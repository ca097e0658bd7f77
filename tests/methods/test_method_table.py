"""The table of methods, and settings that follow from it."""

from dataclasses import fields, replace

import pytest

from tests.methods.examples import EXAMPLES
from varlearn.methods import METHODS, Method, Optim, named, settings_for
from varlearn.train.config import Run, from_json, to_json


@pytest.fixture(autouse=True)
def _rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, method in EXAMPLES.items():
        monkeypatch.setitem(METHODS, name, method)


def test_labels_are_unique_and_names_are_keys() -> None:
    assert [method.name for method in METHODS.values()] == list(METHODS)
    assert len({method.label for method in METHODS.values()}) == len(METHODS)
    assert all(issubclass(method, Method) and method.cost for method in METHODS.values())


@pytest.mark.parametrize("name", ["ivn", "", "Optim", 3, None])
def test_an_unknown_name_is_refused_where_it_is_given(name: str) -> None:
    with pytest.raises(ValueError, match=r"^optim.name=.* must be one of ivon, adamw, sgd"):
        named(name)
    with pytest.raises(ValueError, match=r"^optim.name=.* must be one of ivon, adamw, sgd"):
        Optim(name)


def test_shared_settings_become_those_of_the_method() -> None:
    shared = Optim("swag", lr=0.3)
    values = {field.name: getattr(shared, field.name) for field in fields(Optim)}
    assert Run(optim=shared).optim == METHODS["swag"].Settings(**values)


def test_settings_that_another_method_lacks_are_left_out() -> None:
    swag = METHODS["swag"].Settings(lr=0.3, rank=7)  # type: ignore[call-arg]
    assert settings_for(replace(swag, name="sgd")) == Optim("sgd", lr=0.3)
    assert settings_for(swag) is swag


def test_the_settings_of_a_method_survive_a_file() -> None:
    run = Run(optim=METHODS["swag"].Settings(rank=7))  # type: ignore[call-arg]
    assert '"rank": 7' in to_json(run)
    assert from_json(to_json(run)) == run


def test_a_setting_of_another_method_is_unknown() -> None:
    text = to_json(Run(optim=METHODS["swag"].Settings())).replace('"name": "swag"', '"name": "sgd"')
    with pytest.raises(ValueError, match="optim.collect is not a setting of a run"):
        from_json(text)


def test_the_section_of_the_first_methods_has_the_keys_that_it_always_had() -> None:
    keys = "name lr weight_decay matrices_only beta1 beta2 ess hess_init clip_radius rescale_lr samples"
    for name, further in (("ivon", ["hess_approx"]), ("adamw", []), ("sgd", [])):
        assert [field.name for field in fields(named(name).Settings)] == [*keys.split(), *further]
