"""Screenshot of the gallery of sensitive examples for the documents: `python -m tools.gallery_screenshot`.

A small network learns 2,000 CIFAR-10 images, half a minute on one core; the run is
kept in `runs/screenshots`. Needs chromium, chromedriver, Pillow and CIFAR-10 in `VARLEARN_DATA`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tools.browser import browser, missing
from varlearn.recipes import recipe
from varlearn.recipes.example_gallery import gallery_of_run
from varlearn.recipes.jobs import Job, finish
from varlearn.train import Evaluate, Model, RunFolder, sensitivity_run

RUN = Path("runs/screenshots/gallery")
IMAGE = Path("docs/images/gallery.png")
WIDTH, HEIGHT = 1200, 1500


def main() -> None:
    """Train, make the gallery, and draw it."""
    if absent := missing():
        sys.exit(absent)
    from PIL import Image

    run = recipe("cifar10-resnet20-ivon")
    run = replace(
        run,
        recipe="gallery",
        model=Model("frn_cnn"),
        data=replace(run.data, subset=2_000, ood=()),
        train=replace(run.train, epochs=10, warmup=40.0),
        evaluate=Evaluate(samples=4, subset=1_000),
    )
    finish(Job(run, {}, RUN), progress=False)
    if not RunFolder(RUN).sensitivity.exists():
        sensitivity_run(RUN, progress=False)
    page, _ = gallery_of_run(RUN, most=24)
    with browser() as window:
        window.open(page, WIDTH)
        window.screenshot(IMAGE, HEIGHT)
    with Image.open(IMAGE) as image:
        image.convert("RGB").quantize(256).save(IMAGE, optimize=True)
    print(IMAGE, f"{IMAGE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
