"""The leave-one-out loss against the true test loss during training, for IVON, AdamW and SGD.

python -m experiments.loo.run                 small networks and data, 15 epochs
python -m experiments.loo.run --size full     10,000 CIFAR-10 images with ResNet-20, and more of the others, 30 epochs
python -m experiments.loo.run --summary       prints the table of results.jsonl

Runs what results.jsonl does not contain yet.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import varlearn
from experiments.loo.curves import METHODS, SCALES, learn, tasks
from experiments.loo.gaps import summary

RESULTS = Path(__file__).parent / "results.jsonl"
EPOCHS = {"small": 15, "full": 30}
EXAMPLES = {"small": 400, "full": 2_000}  # left out in turn; a sixteenth of this many windows of text
WINDOWS = 16


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf8").splitlines()] if RESULTS.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(EPOCHS), default="small")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tasks", nargs="*", choices=list(tasks("small")), default=list(tasks("small")))
    parser.add_argument("--summary", action="store_true", help="print the table and run nothing")
    arguments = parser.parse_args()
    if arguments.summary:
        print("\n".join(summary(read(), SCALES)))
        return
    torch.set_num_threads(1)
    for seed in range(arguments.seeds):
        for name in arguments.tasks:
            for method in METHODS:
                job = {"task": name, "method": method, "size": arguments.size, "seed": seed}
                if any(all(run[key] == value for key, value in job.items()) for run in read()):
                    continue
                task = tasks(arguments.size)[name]
                start = time.perf_counter()
                examples = EXAMPLES[arguments.size] // (1 if task.context is None else WINDOWS)
                result = learn(task, method, EPOCHS[arguments.size], seed, examples)
                result |= {**job, "examples": examples, "minutes": (time.perf_counter() - start) / 60}
                result |= {"torch": torch.__version__, "varlearn": varlearn.__version__}
                with RESULTS.open("a", encoding="utf8") as file:
                    file.write(json.dumps(result) + "\n")
                print(job, f"{result['minutes']:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
