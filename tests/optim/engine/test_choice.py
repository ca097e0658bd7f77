"""The table in `choice.py`, row by row."""

import pytest
import torch
from torch import Tensor

from tests.optim.engine.problems import has_compiler, member, new_group
from varlearn.core.update import RULE
from varlearn.optim.engine import choice
from varlearn.optim.engine.native import native_engine

NATIVE = "native" if has_compiler() else "foreach"
PLAIN, DOUBLE, GAPS = torch.zeros(4, 6), torch.zeros(4, 6, dtype=torch.float64), torch.zeros(4, 6)[:, ::2]
BFLOAT16 = torch.zeros(4, 6, dtype=torch.bfloat16)


@pytest.mark.filterwarnings("ignore:the native engine")
@pytest.mark.parametrize(
    ("wants", "param", "engine"),
    [
        ((False, None), PLAIN, "loop"),
        ((False, False), PLAIN, "loop"),
        ((False, False), GAPS, "loop"),
        ((None, None), PLAIN, NATIVE),
        ((None, True), PLAIN, NATIVE),
        ((False, True), PLAIN, NATIVE),
        ((True, True), PLAIN, NATIVE),
        ((True, None), PLAIN, "foreach"),
        ((None, False), PLAIN, "foreach"),
        ((True, False), PLAIN, "foreach"),
        *(((None, fused), other, "foreach") for fused in (None, True, False) for other in (DOUBLE, BFLOAT16)),
        *(((foreach, fused), GAPS, "loop") for foreach in (None, True) for fused in (None, True, False)),
    ],
)
def test_each_row_of_the_table(wants: tuple[bool | None, bool | None], param: Tensor, engine: str) -> None:
    foreach, fused = wants
    assert choice.choose(member(param, group=new_group(foreach=foreach, fused=fused)), RULE) == engine


def test_where_c_cannot_be_compiled_it_is_foreach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_engine, "load_or_warn", lambda: False)
    assert choice.choose(member(PLAIN), RULE) == "foreach"
    assert choice.choose(member(PLAIN, group=new_group(fused=True)), RULE) == "foreach"


def test_nothing_is_compiled_for_parameters_that_do_not_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> bool:
        raise AssertionError("compiled")

    monkeypatch.setattr(native_engine, "load_or_warn", refuse)
    choice.choose(member(DOUBLE), RULE)
    for wants in ({"foreach": False}, {"foreach": True}, {"fused": False}):
        choice.choose(member(PLAIN, group=new_group(**wants)), RULE)


def test_a_rule_without_kernels_is_computed_by_foreach() -> None:
    assert choice.choose(member(PLAIN, group=new_group(fused=True)), RULE._replace(name="mine")) == "foreach"


@pytest.mark.filterwarnings("ignore:the native engine")
def test_there_is_a_plan_for_each_engine_that_has_parameters() -> None:
    params = [PLAIN, GAPS, DOUBLE, PLAIN, GAPS]
    members = [member(param.clone() if param is PLAIN else param, k) for k, param in enumerate(params)]
    plans = choice.make_plans(members, RULE)
    found = {plan.engine: [each.index for each in plan.members] for plan in plans}
    assert found == ({"native": [0, 3], "loop": [1, 4], "foreach": [2]} if has_compiler() else
                     {"foreach": [0, 2, 3], "loop": [1, 4]})  # fmt: skip
    assert choice.make_plans([], RULE) == []
