"""`varlearn merge preview`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from varlearn.cli.merge_command import MethodName, asked_recipe
from varlearn.cli.show import say, table

if TYPE_CHECKING:
    from varlearn.merging.weight_preview import Score
    from varlearn.types import Params


def preview(
    recipe: Path | None = None,
    /,
    *,
    score: str,
    out: Path,
    base: Path | None = None,
    model: list[Path] | None = None,
    method: MethodName | None = None,
    alpha: float | None = None,
    base_hess: float | None = None,
    density: float | None = None,
    dtype: str | None = None,
    skip: list[str] | None = None,
    steps: int = 4,
) -> int:
    """Score merged models over a grid of task weights; one model is in memory at a time.

    Args:
        recipe: TOML file, as for varlearn merge.
        score: FILE.py:FUNCTION; it takes the merged weights by name and returns a score by task. Tied weights have one
            name, as in the files: load them with load_state_dict(weights, strict=False).
        out: folder of preview.json, preview.png and preview.svg; a new one.
        base: folder or file of the weights that all models were finetuned from.
        model: a folder, a posterior or an adapter; repeat the flag for each.
        method: how; hessian unless given.
        alpha: one factor for all models; 1 unless given.
        base_hess: h_0 as a number for the sum of the losses.
        density: fraction of the changes that ties and dare keep.
        dtype: of the merged weights; needed if the models have several.
        skip: pattern of names that are kept from the base; repeat the flag.
        steps: weights are multiples of 1/steps that add up to 1.
    """
    from varlearn.merging.file_merge import check_out

    check_out(out)
    numbers = {"alpha": alpha, "base_hess": base_hess, "density": density}
    asked = asked_recipe(recipe, base, model, None).changed(method=method, dtype=dtype, skip=skip, **numbers)
    function = scoring_function(score)
    from varlearn.merging.weight_preview import preview_merges

    points = []
    for point in preview_merges(asked, function, steps=steps):
        points.append(point)
        say(f"{' '.join(f'{one:g}' for one in point.weights)}: mean {point.mean:.4f}")
    names = [source.path.name for source in asked.models]
    columns = [*names, *points[0].scores, "mean"]
    rows = [[*map("{:g}".format, p.weights), *map("{:.4f}".format, (*p.scores.values(), p.mean))] for p in points]
    table(columns, rows, title=f"{asked.method}, scores by weight", numbers=len(columns))
    _write_preview(out, [(list(p.weights), dict(p.scores)) for p in points], names, asked.method)
    return 0


def scoring_function(words: str) -> Score:
    """The function that FILE.py:NAME means.

    >>> scoring_function("score.py")
    Traceback (most recent call last):
    ...
    ValueError: --score score.py must be FILE.py:FUNCTION, e.g. score.py:accuracy
    """
    from importlib.util import module_from_spec, spec_from_file_location

    path, colon, name = words.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise ValueError(f"--score {words} must be FILE.py:FUNCTION, e.g. score.py:accuracy")
    if not Path(path).is_file():
        raise ValueError(f"--score {words}: {path} does not exist; give a Python file with the function")
    spec = spec_from_file_location("varlearn_score", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"--score {words}: Python cannot load {path}; give a Python file with the function")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"--score {words}: {path} has no function {name!r}; it must take weights and return scores")

    def called(weights: Params) -> Any:
        try:
            return function(weights)
        except Exception as error:
            raise RuntimeError(
                f"--score {words} failed with {type(error).__name__}: {error}; --debug shows where. Tied weights have "
                "one name: load_state_dict(weights, strict=False)"
            ) from error

    return called


def _write_preview(
    out: Path, points: list[tuple[list[float], dict[str, float]]], names: list[str], method: str
) -> None:
    from varlearn.files.checked_json import write_json
    from varlearn.report.merge_figure import merge_figure
    from varlearn.report.style import save

    out.mkdir(exist_ok=True)
    rows = [{"weights": weights, "scores": scores} for weights, scores in points]
    write_json(out / "preview.json", {"method": method, "models": names, "points": rows})
    png, _ = save(merge_figure(points, names), out / "preview")
    say(f"wrote {png}, preview.svg and preview.json")
