"""The demo's runs with five seeds, scored on the test images, as JSON; see README.md.

python -m experiments.demo.run                 trains what runs/demo does not contain yet, writes results.json
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

import torch

import varlearn
from varlearn import data, demo

RESULTS = Path(__file__).parent / "results.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    options = parser.parse_args()
    start = time.perf_counter()
    rows = demo.compare(options.seeds, options.out)
    targets = data.load("digits", "test").targets
    scores = {name: [demo.score(one, targets) for one in answers] for name, answers in rows.items()}
    versions = {"torch": torch.__version__, "varlearn": varlearn.__version__, "python": platform.python_version()}
    result = {"rows": scores, "sentences": demo.sentences(scores), "seconds": round(time.perf_counter() - start, 1)}
    RESULTS.write_text(json.dumps(result | versions, indent=1) + "\n", encoding="utf8")
    print("\n".join(result["sentences"]))


if __name__ == "__main__":
    main()
