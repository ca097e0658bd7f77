"""Mutants change one thing, and the tests of the changed line decide about them."""

import ast
import sys
from pathlib import Path

import pytest

from soak import covering_tests, mutation
from soak.fork_server import ForkServer
from soak.mutants import Mutant, mutants, sample
from soak.results import REPO

SOURCE = '''"""A docstring with 1 + 1."""
import math

LIMIT = 3

def scaled(x: int = 2, flag: bool = True) -> float:
    """Twice."""
    if x < LIMIT and flag:
        raise ValueError(f"x={x + 1} is too small")
    x += 1
    return math.pow(x, 2) - 1.5
'''


def test_every_kind_of_change_is_made_and_texts_are_left_alone() -> None:
    found = mutants(SOURCE, "module.py")
    texts = {each.what for each in found}
    assert texts == {
        "3 -> 4",
        "2 -> 3",
        "True -> False",
        "negated x < LIMIT and flag",
        "x < LIMIT and flag -> x < LIMIT or flag",
        "x < LIMIT -> x <= LIMIT",
        "dropped raise ValueError(f'x={x + 1} is too small')",
        "dropped x += 1",
        "x += 1 -> x -= 1",
        "1 -> 2",
        "return math.pow(x, 2) - 1.5 -> return None",
        "math.pow(x, 2) - 1.5 -> math.pow(x, 2) + 1.5",
        "math.pow(x, 2) -> math.pow(2, x)",
        "1.5 -> 3.0",
    }
    for each in found:
        changed = each.apply(SOURCE)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE)), each
        assert changed.startswith('"""A docstring with 1 + 1."""')


def test_the_sample_depends_on_the_seed_alone() -> None:
    first = sample(REPO, 50, seed=0)
    assert sample(REPO, 20, seed=0) == first[:20]
    assert sample(REPO, 20, seed=1) != first[:20]
    for each in first:
        ast.parse(each.apply((REPO / each.path).read_text()))


def test_a_line_has_its_tests_and_other_lines_those_of_the_file() -> None:
    covering = {"lines": {"a.py": {"3": ["first"], "4": ["second"]}}, "files": {"a.py": ["first", "second", "third"]}}
    assert covering_tests.choose(covering, Mutant("a.py", 4, 3, 0, 0, "", "")) == ["second", "first"]
    assert covering_tests.choose(covering, Mutant("a.py", 9, 9, 0, 0, "", "")) == ["first", "second", "third"]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="forks")
@pytest.mark.skipif(sys.platform == "darwin", reason="torch does not survive a fork there")
def test_the_quadratic_term_of_line_5_is_tested_and_an_equal_program_survives(tmp_path: Path) -> None:
    tree = mutation.copied_tree(tmp_path)
    path = "src/varlearn/core/update.py"
    source = (tree / path).read_text()
    tests = [f"{path}::varlearn.core.update.update_hess", f"{path}::varlearn.core.update.std"]
    outcomes = []
    server = ForkServer(tree, mutation.environment_of(tree))
    try:
        for old, new in (("value=0.5", "value=0.0"), ("1.0 / math.sqrt(ess)", "(1.0 / math.sqrt(ess))")):
            assert source.count(old) == 1
            start = source.index(old)
            mutant = Mutant(path, 1, 1, start, start + len(old), new, f"{old} -> {new}")
            outcomes.append(mutation.judge(tree, server, mutant, tests))
    finally:
        server.close()
    assert [outcome.kept for outcome in outcomes] == [True, False]
    assert "2 tests pass" in outcomes[1].detail
    assert (tree / path).read_text() == source
