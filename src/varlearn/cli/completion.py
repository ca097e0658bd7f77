"""`varlearn completion`."""

from __future__ import annotations

import sys
from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print a script that completes commands, flags and recipes in a shell.

    Args:
        shell: whose language to use.
    """
    from varlearn.cli.app import app

    sys.stdout.write(app.generate_completion(shell=shell))
    return 0
