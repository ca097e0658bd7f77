"""Screenshots of the report page for the documents: `python -m tools.page_screenshots`.

Three pages, each 1,200 and 400 pixels wide: the demo's, one of 15 runs with different settings, one of a regression.
The runs are trained first, a few minutes on two cores, and kept in `runs/screenshots`; a second call only draws.
Needs chromium, chromedriver and Pillow.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path

from tools.browser import browser, missing
from varlearn import demo
from varlearn.methods import named
from varlearn.recipes import digits
from varlearn.recipes.jobs import Job, finish
from varlearn.report import write_report
from varlearn.train import Data, Evaluate, Model, Optim, Run, Train, advise_run

RUNS = Path("runs/screenshots")
IMAGES = Path("docs/images")
WIDTHS = {1200: 2400, 400: 2600}  # pixels of the page: height of the picture


def done(run: Run, name: str) -> Path:
    """The folder of a run, trained unless it is there."""
    out = RUNS / name
    finish(Job(run, {}, out), progress=False)
    advise_run(out)
    return out


def many() -> list[Path]:
    """IVON with five learning rates and three first values of h."""
    found = []
    for lr, hess_init in itertools.product((0.1, 0.3, 1.0, 2.0, 4.0), (0.03, 0.1, 0.5)):
        run = digits("ivon")
        run = replace(
            run,
            data=replace(run.data, ood=demo.STRANGE),
            optim=replace(run.optim, lr=lr, hess_init=hess_init),
            train=replace(run.train, steps=300),
        )
        found.append(done(run, f"lr{lr}-h{hess_init}"))
    return found


def regression() -> list[Path]:
    """VAdamW, AdamW and SGD on the concrete data, three seeds each."""
    steps, found = 1_000, []
    for name, seed in itertools.product(("vadamw", "adamw", "sgd"), range(3)):
        optim = {
            "vadamw": named("vadamw").Settings(name="vadamw"),
            "adamw": Optim(name="adamw", lr=1e-3, weight_decay=1e-2, beta2=0.999),
            "sgd": Optim(name="sgd", lr=0.03, weight_decay=2e-4),
        }[name]
        run = Run(
            recipe=f"concrete-{name}",
            seed=seed,
            model=Model("mlp", hidden=(50,)),
            data=Data("uci-concrete", validation=0.1, augment=False),
            optim=optim,
            train=Train(steps=steps, eval_every=100, checkpoint_every=0, log_every=20),
            evaluate=Evaluate(samples=64),
        )
        found.append(done(run, f"concrete-{name}-{seed}"))
    return found


def main() -> int:
    """Train what is missing, write the pages, take the pictures."""
    if absent := missing():
        print(absent, file=sys.stderr)
        return 1
    from PIL import Image

    demo.main(seeds=5, out=RUNS / "demo")
    pages = {
        "demo": RUNS / "demo" / "report.html",
        "many": write_report(many(), RUNS / "many", title="IVON: five learning rates, three h0"),
        "regression": write_report(regression(), RUNS / "regression"),
    }
    IMAGES.mkdir(parents=True, exist_ok=True)
    with browser() as window:
        for (name, page), (width, height) in itertools.product(pages.items(), WIDTHS.items()):
            picture = IMAGES / f"report-{name}-{width}.png"
            window.open(page, width)
            window.screenshot(picture, height)
            with Image.open(picture) as image:
                image.convert("RGB").quantize(256).save(picture, optimize=True)
            print(picture, f"{picture.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
