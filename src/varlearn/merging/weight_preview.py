"""Scores of merged models over a grid of task weights, with one model in memory at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from varlearn.merging.merge_recipe import MergeRecipe
from varlearn.merging.plan_pieces import merged_weights
from varlearn.types import Params

Score = Callable[[Params], Mapping[str, float]]
"""From the weights and buffers of a merged model, by the names in the files, to the score of each task."""


@dataclass(frozen=True)
class PreviewPoint:
    """One place of the grid.

    Attributes:
        weights: one per model.
        scores: by task.
    """

    weights: tuple[float, ...]
    scores: Mapping[str, float]

    @property
    def mean(self) -> float:
        """Of the tasks."""
        return sum(self.scores.values()) / len(self.scores)


def weight_grid(models: int, steps: int) -> Iterator[tuple[float, ...]]:
    """All weights that are multiples of 1/steps and add up to 1, in lexicographic order.

    >>> list(weight_grid(2, 2))
    [(0.0, 1.0), (0.5, 0.5), (1.0, 0.0)]
    >>> len(list(weight_grid(3, 4)))
    15
    """
    if steps < 1:
        raise ValueError(f"steps={steps} must be >= 1; 4 gives five weights for each of two models")

    def parts(left: int, places: int) -> Iterator[tuple[int, ...]]:
        if places == 1:
            yield (left,)
            return
        for first in range(left + 1):
            for rest in parts(left - first, places - 1):
                yield (first, *rest)

    for counts in parts(steps, models):
        yield tuple(count / steps for count in counts)


def preview_merges(recipe: MergeRecipe, score: Score, *, steps: int = 4) -> Iterator[PreviewPoint]:
    """Merge the recipe's models with each weight of the grid, and score the result.

    With weights (1, 0) the result is the first model itself, for the curvature-weighted methods too. The recipe's own
    weights multiply those of the grid.

    Args:
        recipe: base, models and method.
        score: may keep a model and load the weights into it; they are its own.
        steps: of the grid; the number of points grows quickly with the number of models.
    """
    plan = recipe.plan()
    for weights in weight_grid(len(plan.models), steps):
        scaled = [own * weight for own, weight in zip(plan.settings.weights, weights, strict=True)]
        here = replace(plan, settings=replace(plan.settings, weights=scaled))
        with torch.no_grad():
            merged = merged_weights(here)
        yield PreviewPoint(weights, _scores(score(merged), weights))


def _scores(returned: object, weights: Sequence[float]) -> dict[str, float]:
    if not isinstance(returned, Mapping) or not returned:
        raise TypeError(
            f"the scoring function returned {returned!r}; it must return a dictionary with a number for each task"
        )
    found = {str(task): float(value) for task, value in returned.items()}
    for task, value in found.items():
        if not math.isfinite(value):
            raise ValueError(f"the score of {task!r} is {value} with weights {tuple(weights)}; it must be finite")
    return found
