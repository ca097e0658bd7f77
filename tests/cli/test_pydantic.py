"""Commands work in a process that has imported pydantic, which Cyclopts then asks about the values of flags."""

import subprocess
import sys

import pytest


def test_settings_are_taken_where_pydantic_is_imported() -> None:
    pytest.importorskip("pydantic")
    words = ["train", "digits-ivon", "--optim.lr", "0.1", "--data.batch_size", "0"]
    code = f"import pydantic, sys; from varlearn.cli import main; sys.exit(main({words}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 2
    assert "data.batch_size=0 must be >= 1" in done.stderr
