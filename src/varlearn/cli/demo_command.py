"""`varlearn demo`."""

from __future__ import annotations

from pathlib import Path

from varlearn.cli.missing_packages import require


def demo(*, seeds: int = 5, out: Path = Path("runs/demo"), steps: int | None = None) -> int:
    """Train AdamW, SGD and VAdamW on scikit-learn's digits: accuracy, calibration, and doubt about strange images.

    Args:
        seeds: runs of each method.
        out: folder for the runs and the page.
        steps: training steps; 1,200 unless given.
    """
    if seeds < 1:
        raise ValueError(f"--seeds {seeds} must be at least 1")
    require("sklearn")
    from varlearn.demo import main

    return main(seeds, out, steps)
