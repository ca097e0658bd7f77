"""Do the curvatures that training leaves behind agree with the SG pass? Rank correlations over weights; see README.md.

python -m experiments.merging.curvatures --data DIR --models runs/merging --tasks sst2
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from experiments.merging.compare import RESULTS, rank_correlation, summed
from experiments.merging.finetuning import Classifier, tokenizer
from experiments.merging.reviews import TASKS, batches, load
from experiments.merging.train import note_in
from varlearn.merging import squared_gradients
from varlearn.posterior import load as read_posterior
from varlearn.types import Params

EXAMPLES, SAMPLE = 96, 200_000
OUT = RESULTS.with_name("curvatures.jsonl")


def chosen(values: Params, places: torch.Tensor) -> torch.Tensor:
    return torch.cat([values[name].flatten() for name in sorted(values)])[places]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=Path("runs/merging"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    words, model = tokenizer(), Classifier()
    for name in options.tasks:
        task = load(options.data, name, words)
        halves = [task.train[:EXAMPLES], task.train[EXAMPLES : 2 * EXAMPLES]]
        for kind in ("ivon", "adamw"):
            posterior = read_posterior(options.models / f"{kind}-{name}-{options.seed}.safetensors")
            model.load_state_dict(posterior.mean, strict=False)
            model.eval()
            start = time.perf_counter()
            squares = [squared_gradients(model, batches(part, 16), seed=place) for place, part in enumerate(halves)]
            seconds = time.perf_counter() - start
            seen = torch.cat([squares[0][key].flatten() for key in sorted(posterior.mean)]) > 0
            generator = torch.Generator().manual_seed(0)
            places = seen.nonzero().flatten()
            places = places[torch.randperm(len(places), generator=generator)[:SAMPLE]]
            first, second, own = (
                chosen({k: one[k] for k in posterior.mean}, places) for one in (*squares, summed(posterior))
            )
            row = {
                "task": name, "kind": kind, "seed": options.seed, "examples": EXAMPLES, "sg_seconds": seconds,
                "own_with_sg": rank_correlation(own, first + second), "sg_with_sg": rank_correlation(first, second),
                "own_quantiles": own.quantile(torch.tensor([0.1, 0.5, 0.9])).tolist(),
                "sg_quantiles": (first + second).quantile(torch.tensor([0.1, 0.5, 0.9])).tolist(),
            }  # fmt: skip
            note_in(OUT, row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
