"""`varlearn demo`."""

from __future__ import annotations

from pathlib import Path

from varlearn.demo import main


def demo(*, seeds: int = 5, out: Path = Path("runs/demo"), steps: int | None = None) -> int:
    """Train AdamW, SGD and IVON on scikit-learn's digits, and compare accuracy, calibration and sense for strange images.

    About two minutes on two cores; what is trained already is not trained again.

    Args:
        seeds: runs of each method.
        out: folder for runs and figures.
        steps: training steps; 1,200 unless given.
    """
    return main(seeds, out, steps)
