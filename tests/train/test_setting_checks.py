"""Every rule refuses something, and every number has a rule."""

from dataclasses import fields

import pytest

from varlearn.train.config import Data, Evaluate, Model, Optim, Run, Train
from varlearn.train.setting_checks import RULES

SECTIONS = {"": Run, "model.": Model, "data.": Data, "optim.": Optim, "train.": Train, "evaluate.": Evaluate}


def owner(name: str) -> tuple[type, str]:
    section, _, field = name.rpartition(".")
    return SECTIONS[f"{section}." if section else ""], field


@pytest.mark.parametrize("name", RULES)
def test_a_value_outside_is_refused_by_its_path(name: str) -> None:
    cls, field = owner(name)
    low = (0,) if name == "model.hidden" else -1
    with pytest.raises(ValueError, match=rf"^{name}=.* must be .*; "):
        cls(**{field: low})


def test_every_number_has_a_rule() -> None:
    numbers = {
        f"{prefix}{field.name}"
        for prefix, cls in SECTIONS.items()
        for field in fields(cls)
        if any(kind in str(field.type) for kind in ("int", "float"))
    }
    assert numbers == set(RULES)


@pytest.mark.parametrize("name", ["data.subset", "optim.ess", "train.steps", "train.max_grad_norm", "train.eval_every"])
def test_none_is_allowed_where_the_type_says_so(name: str) -> None:
    cls, field = owner(name)
    assert getattr(cls(**{field: None}), field) is None
