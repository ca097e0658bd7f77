"""`varlearn merge`; `varlearn merge preview` is in `preview_command`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from varlearn.cli.show import say, table

if TYPE_CHECKING:
    from varlearn.merging.merge_plan import MergePlan
    from varlearn.merging.merge_recipe import MergeRecipe

MethodName = Literal["hessian", "average", "task_arithmetic", "ties", "dare", "fisher", "regmean"]
_SIZES = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

merge_app = App(name="merge")
merge_app.command("varlearn.cli.preview_command:preview", name="preview")


@merge_app.default
def merge(
    recipe: Path | None = None,
    /,
    *,
    out: Path | None = None,
    base: Path | None = None,
    model: list[Path] | None = None,
    weight: list[float] | None = None,
    method: MethodName | None = None,
    alpha: float | None = None,
    base_hess: float | None = None,
    density: float | None = None,
    seed: int | None = None,
    gram_shrinkage: float | None = None,
    dtype: str | None = None,
    skip: list[str] | None = None,
    shard_size: str = "5GB",
    dry_run: Annotated[bool, Parameter(name="--dry-run", negative="")] = False,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Merge finetuned models in files, one tensor at a time.

    Args:
        recipe: TOML file with these settings, base and [[models]]; flags replace its entries.
        out: folder of the result, a new one.
        base: folder or file of the weights that all models were finetuned from.
        model: a folder, a posterior or an adapter; repeat the flag for each.
        weight: of each model, in their order; repeat the flag. 1 unless given.
        method: how; hessian unless given.
        alpha: one factor for all models; 1 unless given.
        base_hess: h_0 as a number for the sum of the losses, in place of the base's curvature.
        density: fraction of the changes that ties and dare keep; 0.2 unless given.
        seed: of dare.
        gram_shrinkage: factor of the off-diagonals of regmean; 0.9 unless given.
        dtype: of the result; needed if the models have several.
        skip: pattern of names that are kept from the base, e.g. "classifier.*"; repeat the flag.
        shard_size: the largest file, e.g. 500MB.
        dry_run: check everything and say what would be done.
        quiet: no progress.
    """
    numbers = {"alpha": alpha, "base_hess": base_hess, "density": density, "seed": seed}
    others = {"gram_shrinkage": gram_shrinkage, "dtype": dtype, "method": method, "skip": skip}
    asked = asked_recipe(recipe, base, model, weight).changed(**numbers, **others)
    limit = bytes_of(shard_size)
    from varlearn.merging.file_merge import check_out, merge_files

    if out is None and not dry_run:
        raise ValueError("no folder for the result is given; give --out, or --dry-run to check only")
    if out is not None:
        check_out(out)
    plan = asked.plan()
    _say_plan(plan, limit)
    if dry_run or out is None:
        say("nothing was written: --dry-run")
        return 0
    from varlearn.cli.merge_progress import MergeProgress

    with MergeProgress(quiet) as progress:
        merge_files(plan, out, shard_bytes=limit, progress=progress.show)
    say(f"wrote {out}; settings and checksums are in {out / 'merge.json'}")
    return 0


def asked_recipe(
    recipe: Path | None, base: Path | None, model: list[Path] | None, weight: list[float] | None
) -> MergeRecipe:
    """The recipe of the file, with base, models and weights of the flags in place of those in the file."""
    from varlearn.merging.merge_checks import checked_weights
    from varlearn.merging.merge_recipe import MergeRecipe, Source, read_recipe

    asked = MergeRecipe() if recipe is None else read_recipe(recipe)
    models = None if model is None else tuple(Source(path) for path in model)
    asked = asked.changed(base=None if base is None else Source(base), models=models)
    if weight is not None:
        from dataclasses import replace

        weights = checked_weights(weight, len(asked.models))
        both = zip(asked.models, weights, strict=True)
        asked = asked.changed(models=tuple(replace(source, weight=one) for source, one in both))
    return asked


def bytes_of(size: str) -> int:
    """A number of bytes from a number with a unit.

    >>> bytes_of("5GB"), bytes_of("1.5 MiB")
    (5000000000, 1572864)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]I?B)?\s*", size.upper())
    count = int(float(match[1]) * _SIZES[match[2] or ""]) if match else 0
    if count < 1:
        raise ValueError(f"--shard_size {size} must be a size of at least one byte, e.g. 5GB or 500MB")
    return count


def _say_plan(plan: MergePlan, limit: int) -> None:
    from varlearn.merging.file_merge import shards_of

    sources = [["base", str(plan.base.path), "", _curvature(plan.base)]]
    for weight, model in zip(plan.settings.weights, plan.models, strict=True):
        sources.append(["model", str(model.path), f"{weight:g}", _curvature(model)])
    table(["", "path", "weight", "curvature"], sources, title=f"{plan.settings.method}, alpha {plan.settings.alpha:g}")
    merged = [step for step in plan.steps if step.merged]
    kept = [step for step in plan.steps if not step.merged]
    size = sum(step.size for step in plan.steps)
    count, files = sum(step.shape.numel() for step in merged), len(shards_of(plan.steps, limit))
    say(f"{len(merged)} tensors with {count:,} weights are merged, {len(kept)} are kept from the base")
    say(f"the result has {size / 1e6:,.1f} MB in {files} {'file' if files == 1 else 'files'}")
    for step in kept[:20]:
        say(f"  kept: {step.name} ({step.reason})")
    if len(kept) > 20:
        say(f"  and {len(kept) - 20} more")


def _curvature(model: object) -> str:
    origin, hess = getattr(model, "origin", None), getattr(model, "hess", None)
    if hess is None or origin is None:
        return "none"
    sizes = [f"{name} {value:g}" for name, value in (("n", origin.n), ("batch_size", origin.batch_size)) if value]
    return ", ".join([f"{origin.curvature} per {origin.per}", *sizes])
