"""Each block of docs/integrations.md imports what it uses, and its imports work where the framework is installed."""

import ast
import builtins
import importlib.util
from pathlib import Path

import pytest

from tests.test_docs import Fence, split

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
BLOCKS = [fence for fence in split(PAGE.read_text(encoding="utf-8"))[1] if fence.info.startswith("python")]
YOURS = {
    "model",
    "data",
    "validation_data",
    "base",
    "loader",
    "validation_loader",
    "loss_fn",
    "n",
    "batch_size",
    "steps",
    "self",
}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"line {block.line}")
def test_a_block_imports_what_it_uses(block: Fence) -> None:
    tree = ast.parse(block.text)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    made |= {node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    made |= {alias.name for node in imports for alias in node.names}
    assert {node.id for node in names if isinstance(node.ctx, ast.Load)} - made - YOURS - set(dir(builtins)) == set()
    assert imports
    for node in imports:
        assert node.module is not None
        if importlib.util.find_spec(node.module.partition(".")[0]) is not None:
            exec(compile(ast.Module([node], []), str(PAGE), "exec"), {})
