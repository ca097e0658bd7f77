"""Merging with the curvature of pretraining: a small GPT pretrained with IVON, finetuned on two texts; see README.md.

python -m experiments.merging.ivon_pretraining            runs the seeds that ivon_pretraining.jsonl does not have yet
python -m experiments.merging.ivon_pretraining --table    the table of README.md
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import varlearn
from experiments.merging.shuffled_curvature import shuffled
from varlearn import IVON, data, presets
from varlearn.merging import squared_gradients
from varlearn.models import GPT2
from varlearn.posterior import DiagGaussian, Origin
from varlearn.types import Params

RESULTS = Path(__file__).with_name("ivon_pretraining.jsonl")
CONTEXT, BATCH, SEEDS = 64, 16, (0, 1, 2)
PRETRAINING, FINETUNING = (1_000, 1_000_000), (200, 200_000)  # steps, bytes of text
LRS = (3.0, 1.0)
SQUARED = 256  # windows of each SG pass
TESTED = 60_000  # bytes of each text
Windows = tuple[Tensor, Tensor]


def windows(text: Tensor) -> Windows:
    """Inputs and targets, (N, CONTEXT) each."""
    count = (len(text) - 1) // CONTEXT
    inputs, targets = (text[start : start + count * CONTEXT].view(-1, CONTEXT).long() for start in (0, 1))
    return inputs, targets


def text(name: str, split: str) -> Tensor:
    """The bytes of a text."""
    found = data.load(name, split, tokens="bytes").inputs
    assert isinstance(found, Tensor)
    return found


def texts() -> dict[str, tuple[Windows, Windows]]:
    """Of each text the part to learn from and the part to test on. The file of WikiText-2 is its test set, cut."""
    wikitext = text("wikitext2", "test")
    sources = {
        "brown": (text("brown", "train")[: PRETRAINING[1]], text("brown", "test")),
        "shakespeare": (text("tinyshakespeare", "train")[: FINETUNING[1]], text("tinyshakespeare", "test")),
        "wikitext": (wikitext[: FINETUNING[1]], wikitext[1_000_000:]),
    }
    return {name: (windows(train), windows(test[:TESTED])) for name, (train, test) in sources.items()}


def network() -> GPT2:
    return GPT2(layers=2, heads=2, width=64, vocab=256, context=CONTEXT)


def trained(model: GPT2, train: Windows, steps: int, lr: float, seed: int) -> DiagGaussian:
    """Train with IVON; the posterior says what its h is."""
    inputs, targets = train
    n = inputs.numel()
    settings: dict[str, Any] = presets.short_run(n, steps, like="adamw") | {"betas": (0.9, 1 - 5 / steps)}
    optimizer = IVON(model.parameters(), **settings, seed=seed)
    order = torch.Generator().manual_seed(seed)
    model.train()
    for step in range(steps):
        rows = torch.randint(len(inputs), (BATCH,), generator=order)
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps))
        with optimizer.sampled_params(train=True):
            optimizer.zero_grad()
            cross_entropy(model(inputs[rows]).flatten(0, 1), targets[rows].flatten()).backward()
        optimizer.step()
    known = Origin(method="ivon", curvature="ivon", per="mean", n=n)
    return replace(DiagGaussian.from_optimizer(model, optimizer), origin=known)


def squares(model: GPT2, weights: Params, train: Windows) -> Params:
    """The SG estimate for the sum over the windows of a text, from `SQUARED` of them."""
    model.load_state_dict(dict(weights), strict=False)
    model.eval()
    inputs, targets = (part[:SQUARED] for part in train)
    found = squared_gradients(model, [(inputs[at : at + 32], targets[at : at + 32]) for at in range(0, SQUARED, 32)])
    return {name: value * (len(train[0]) / SQUARED) for name, value in found.items()}


@torch.no_grad()
def losses(model: GPT2, weights: Params, tests: dict[str, Windows]) -> dict[str, float]:
    """Nats per byte of each text."""
    model.load_state_dict(dict(weights), strict=False)
    model.eval()
    found = {}
    for name, (inputs, targets) in tests.items():
        rows = zip(inputs.split(64), targets.split(64), strict=True)
        total = sum(cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").item() for x, y in rows)
        found[name] = total / targets.numel()
    return found


def with_shuffled(one: DiagGaussian, seed: int) -> DiagGaussian:
    """The same posterior with the curvatures of each tensor in another order."""
    return replace(one, hess=shuffled(dict(one.hess), seed))


def rank_correlation(a: Params, b: Params) -> float:
    flat = [torch.cat([one[name].flatten() for name in sorted(a)]).argsort().argsort().double() for one in (a, b)]
    return torch.corrcoef(torch.stack(flat))[0, 1].item()


def run(seed: int) -> dict[str, object]:
    """Pretrain, finetune twice, merge with each h_0, test."""
    torch.manual_seed(seed)
    parts, model = texts(), network()
    tests = {name: parts[name][1] for name in ("shakespeare", "wikitext")}
    base = trained(model, parts["brown"][0], PRETRAINING[0], LRS[0], seed)
    tuned = []
    for number, name in enumerate(tests, 1):
        model.load_state_dict(dict(base.mean), strict=False)
        tuned.append(trained(model, parts[name][0], FINETUNING[0], LRS[1], 10 * seed + number))
    of_base = squares(model, base.mean, parts["brown"][0])
    of_tuned = [squares(model, one.mean, parts[name][0]) for one, name in zip(tuned, tests, strict=True)]
    start = dict(base.mean)
    merged = {
        "average": varlearn.merge(start, tuned, method="average"),
        "task arithmetic": varlearn.merge(start, tuned, method="task_arithmetic"),
        "h of IVON, no h_0": varlearn.merge(start, tuned),
        "h of IVON, h_0 of IVON's pretraining": varlearn.merge(base, tuned),
        "h of IVON, h_0 by SG": varlearn.merge(start, tuned, base_hess=of_base),
        "both of IVON, shuffled": varlearn.merge(with_shuffled(base, 0), [with_shuffled(one, 1) for one in tuned]),
        "h by SG, h_0 by SG": varlearn.merge(start, tuned, hess=of_tuned, base_hess=of_base),
    }
    singles = {name: one.mean for name, one in zip(tests, tuned, strict=True)}
    scores = {name: losses(model, weights, tests) for name, weights in {"base": start, **singles, **merged}.items()}
    n = float(parts["brown"][0][0].numel())
    own = {name: n * value for name, value in base.hess.items()}
    sizes = {what: sum(v.sum().item() for v in h.values()) for what, h in (("IVON", own), ("SG", of_base))}
    return {"seed": seed, "losses": scores, "h_0 summed": sizes, "rank correlation": rank_correlation(own, of_base)}


def table() -> None:
    """Mean and standard deviation over seeds, in nats per byte."""
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    print("| model | seeds | shakespeare | wikitext | mean |\n|---|---|---|---|---|")
    for name in rows[0]["losses"]:
        per_text = [[row["losses"][name][text] for row in rows] for text in ("shakespeare", "wikitext")]
        columns = [*per_text, [statistics.mean(pair) for pair in zip(*per_text, strict=True)]]
        spread = [f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "" for values in columns]
        cells = [f"{statistics.mean(values):.3f}{spread[place]}" for place, values in enumerate(columns)]
        print(f"| {name} | {len(rows)} | {' | '.join(cells)} |")
    for row in rows:
        print(row["seed"], row["h_0 summed"], f"rank correlation of h_0: {row['rank correlation']:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the table")
    if parser.parse_args().table:
        table()
    else:
        done = [json.loads(line)["seed"] for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
        for seed in SEEDS:
            if seed not in done:
                found = run(seed)
                with open(RESULTS, "a") as file:
                    file.write(json.dumps(found) + "\n")
