"""Small changes of a source file that the tests should notice.

Each mutant changes one expression or one statement. Docstrings, messages, annotations, imports and decorators are left
alone: no test should depend on them.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COMPONENTS = ("core", "optim", "posterior", "metrics")
# Their tests start processes, or take minutes in an interpreter of kernels: too slow to be run for each mutant.
_SLOWLY_TESTED = ("optim/ranks/", "core/shards.py", "optim/engine/triton/")

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_MESSAGES, _ERRORS = ("_log.", "warnings."), ("Error", "Warning")  # arguments of these calls are texts for a reader
_IGNORED_FIELDS = ("annotation", "returns", "decorator_list", "type_params", "bases")


class Mutant(NamedTuple):
    """One change of one file.

    Attributes:
        path: of the file, from the root of the project.
        line: of the change, from 1.
        statement: the first line of the statement that is changed.
        start: position of the replaced text in the file, in characters.
        end: where it ends.
        text: what replaces it.
        what: the change in words.
    """

    path: str
    line: int
    statement: int
    start: int
    end: int
    text: str
    what: str

    def apply(self, source: str) -> str:
        """The changed source."""
        return source[: self.start] + self.text + source[self.end :]


def sample(root: Path, count: int, seed: int) -> list[Mutant]:
    """The first `count` of all mutants of the components, in a random order that the seed decides."""
    found: list[Mutant] = []
    for component in COMPONENTS:
        for path in sorted((root / "src" / "varlearn" / component).rglob("*.py")):
            if not any(part in str(path) for part in _SLOWLY_TESTED):
                found += mutants(path.read_text(encoding="utf-8"), str(path.relative_to(root)))
    random.Random(seed).shuffle(found)
    return found[:count]


def mutants(source: str, path: str) -> list[Mutant]:
    """All mutants of a file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.splitlines()

    def position(line: int, column: int) -> int:  # the tree counts columns in bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found = []
    for statement, node, text, what in _changes(ast.parse(source), 1):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = position(node.lineno, node.col_offset)
        end = position(node.end_lineno, node.end_col_offset)
        found.append(Mutant(path, node.lineno, statement, start, end, text, what))
    return found


Located = ast.expr | ast.stmt


def _changes(tree: ast.AST, statement: int) -> Iterator[tuple[int, Located, str, str]]:
    """(line of the statement, node, its replacement, the change in words) for everything that may be changed."""
    for field, value in ast.iter_fields(tree):
        if field in _IGNORED_FIELDS:
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or _is_text(node):
                continue
            if isinstance(node, ast.stmt):
                statement = node.lineno
                for part, text, what in _statement_changes(node):
                    yield statement, part, text, what
            elif isinstance(node, ast.expr):
                for changed in _expression_changes(node):
                    yield statement, node, f"({ast.unparse(changed)})", f"{_short(node)} -> {_short(changed)}"
            yield from _changes(node, statement)


def _is_text(node: ast.AST) -> bool:
    """Whether a node is a docstring, a message, an import or a list of names."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr)):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or _is_text(node.value)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).startswith(_MESSAGES) or ast.unparse(node.func).endswith(_ERRORS)
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _statement_changes(node: ast.stmt) -> Iterator[tuple[Located, str, str]]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield node, "pass", f"dropped {_short(node)}"
    elif isinstance(node, ast.Assign) and not any(isinstance(target, ast.Name) for target in node.targets):
        if not any(isinstance(target, ast.Tuple) for target in node.targets):
            yield node, "pass", f"dropped {_short(node)}"
    elif isinstance(node, ast.AugAssign):
        yield node, "pass", f"dropped {_short(node)}"
        if type(node.op) in _OPERATORS:
            changed = copy.deepcopy(node)
            changed.op = _OPERATORS[type(node.op)]()
            yield node, ast.unparse(changed), f"{_short(node)} -> {_short(changed)}"
    elif isinstance(node, ast.Raise):
        yield node, "pass", f"dropped {_short(node)}"
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield node, "return None", f"{_short(node)} -> return None"
    elif isinstance(node, (ast.Break, ast.Continue)):
        other = "continue" if isinstance(node, ast.Break) else "break"
        yield node, other, f"{_short(node)} -> {other}"
    elif isinstance(node, (ast.If, ast.While)):
        yield node.test, f"(not ({ast.unparse(node.test)}))", f"negated {_short(node.test)}"


def _expression_changes(node: ast.expr) -> Iterator[ast.expr]:
    changed = copy.deepcopy(node)
    if isinstance(changed, ast.Compare):
        for position, operator in enumerate(changed.ops):
            other = copy.deepcopy(changed)
            other.ops[position] = _COMPARISONS[type(operator)]()
            yield other
    elif isinstance(changed, ast.BinOp) and type(changed.op) in _OPERATORS:
        if not any(isinstance(side, ast.JoinedStr) or _is_string(side) for side in (changed.left, changed.right)):
            changed.op = _OPERATORS[type(changed.op)]()
            yield changed
    elif isinstance(changed, ast.BoolOp):
        changed.op = ast.Or() if isinstance(changed.op, ast.And) else ast.And()
        yield changed
    elif isinstance(changed, ast.UnaryOp) and isinstance(changed.op, (ast.Not, ast.USub)):
        yield changed.operand
    elif isinstance(changed, ast.IfExp):
        changed.test = ast.UnaryOp(ast.Not(), changed.test)
        yield changed
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, (bool, int, float)):
        yield ast.Constant(_other_constant(changed.value))
    elif isinstance(changed, ast.Call) and len(changed.args) >= 2:
        first, second = changed.args[:2]
        if not any(isinstance(each, ast.Starred) for each in (first, second)) and ast.dump(first) != ast.dump(second):
            changed.args[:2] = second, first
            yield changed


def _other_constant(value: bool | int | float) -> bool | int | float:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return 2.0 * value if value else 1.0


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
