"""`varlearn demo`."""

from __future__ import annotations

from pathlib import Path


def demo(*, seeds: int = 5, out: Path = Path("runs/demo"), steps: int | None = None) -> int:
    """Train AdamW, SGD and IVON on scikit-learn's digits: accuracy, calibration, and doubt about strange images.

    Args:
        seeds: runs of each method.
        out: folder for runs and figures.
        steps: training steps; 1,200 unless given.
    """
    from varlearn.demo import main

    return main(seeds, out, steps)
