"""IVON against NUTS on four regressions: 1,000 draws each, the competition's distance and the true one; see README.md.

python -m experiments.competition.run          # VARLEARN_DATA names the data pack; a minute on one core
"""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

import torch

from varlearn.data.posteriordb import NAMES
from varlearn.recipes.regression_distance import regression_distance

RESULTS = Path(__file__).parent / "results.json"
SEEDS = 3


def main() -> None:
    """Every regression with three seeds of the noise; written after each."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {"environment": {"torch": torch.__version__, "python": platform.python_version()}}
    began = time.process_time()
    for name in NAMES:
        found[name] = [regression_distance(name, seed) for seed in range(SEEDS)]
        found["cpu_seconds"] = round(time.process_time() - began, 1)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(found[name][0]), flush=True)


if __name__ == "__main__":
    main()
