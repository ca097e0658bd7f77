"""The table of docs/integrations.md: every cell names a test, and the test exists."""

import ast
import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
TABLE = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in (REPO / "docs" / "integrations.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|")
]


def test_the_table_is_whole() -> None:
    header, _, *rows = TABLE
    assert header[1:] == ["accumulation", "clipping", "AMP", "resume, bitwise", "averaged evaluation"]
    assert [row[0] for row in rows] == ["Trainer", "TRL", "PEFT", "Accelerate", "Lightning"]
    assert all(len(row) == len(header) for row in rows)


@pytest.mark.parametrize("cell", sorted({cell for row in TABLE[2:] for cell in row[1:]}))
def test_every_cell_names_a_test(cell: str) -> None:
    match = re.fullmatch(r"`(tests/integrations/test_\w+\.py)::(test_\w+)`", cell)
    assert match, f"{cell!r} names no test"
    tree = ast.parse((REPO / match[1]).read_text(encoding="utf-8"))
    assert match[2] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
