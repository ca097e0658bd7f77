"""Every rule refuses something, and every number has a rule."""

from dataclasses import fields
from typing import Any

import pytest

from varlearn.methods import METHODS
from varlearn.setting_checks import Rule
from varlearn.train.config import Data, Evaluate, Model, Optim, Run, Train

SECTIONS = {"": Run, "model.": Model, "data.": Data, "optim.": Optim, "train.": Train, "evaluate.": Evaluate}
RULES: dict[str, Rule] = {
    f"{prefix}{name}": rule for prefix, cls in SECTIONS.items() for name, rule in cls.RULES.items()
}


def owner(name: str) -> tuple[type, str]:
    section, _, field = name.rpartition(".")
    return SECTIONS[f"{section}." if section else ""], field


@pytest.mark.parametrize("name", RULES)
def test_a_value_outside_is_refused_by_its_path(name: str) -> None:
    cls, field = owner(name)
    low = (0,) if name == "model.hidden" else -1
    with pytest.raises(ValueError, match=rf"^{name}=.* must be .*; "):
        cls(**{field: low})


@pytest.mark.parametrize(
    "cls",
    dict.fromkeys([*SECTIONS.values(), *(method.Settings for method in METHODS.values())]),
    ids=lambda c: c.__name__,
)
def test_every_number_has_a_rule(cls: Any) -> None:
    hints = {field.name: str(field.type) for field in fields(cls)}
    assert {name for name, hint in hints.items() if "int" in hint or "float" in hint} == set(cls.RULES)


@pytest.mark.parametrize("name", ["data.subset", "optim.ess", "train.steps", "train.max_grad_norm", "train.eval_every"])
def test_none_is_allowed_where_the_type_says_so(name: str) -> None:
    cls, field = owner(name)
    assert getattr(cls(**{field: None}), field) is None
