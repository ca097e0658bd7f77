"""Scores of merged models over the weights of their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from varlearn.report.figures import curves
from varlearn.report.style import COLORS, drawing, figure

Place = tuple[Sequence[float], Mapping[str, float]]
"""Weights of the models, and the score of each task."""


def merge_figure(places: Sequence[Place], models: Sequence[str]) -> Figure:
    """For two models a line for each task over the first one's weight, with the mean; else the scores of all places.

    With more models each place is a thin line over the tasks, the one with the best mean thick, with its weights.

    Args:
        places: of the grid.
        models: their names.

    >>> places = [((0.0, 1.0), {"a": 0.5, "b": 0.9}), ((1.0, 0.0), {"a": 0.8, "b": 0.6})]
    >>> [line.get_label() for line in merge_figure(places, ["first", "second"]).axes[0].lines]
    ['a', 'b', 'mean']
    """
    tasks = list(places[0][1])
    if len(models) == 2:
        lines = {task: [(weights[0], scores[task]) for weights, scores in places] for task in tasks}
        mean = [(weights[0], sum(scores.values()) / len(scores)) for weights, scores in places]
        return curves(lines | ({"mean": mean} if len(tasks) > 1 else {}), f"weight of {models[0]}", "score")
    best = max(places, key=lambda place: sum(place[1].values()))
    with drawing():
        made = figure(max(4.2, 0.9 * len(tasks)), 3.0)
        axis = made.subplots()
        for place in places:
            chosen = place is best
            style = {"color": COLORS[0], "linewidth": 2.0} if chosen else {"color": COLORS[5], "linewidth": 0.5}
            axis.plot(range(len(tasks)), [place[1][task] for task in tasks], marker="o", markersize=3, **style)
        axis.set_xticks(range(len(tasks)), tasks)
        weights = ", ".join(f"{name} {weight:g}" for name, weight in zip(models, best[0], strict=True))
        axis.set(ylabel="score")
        axis.set_title(f"best mean: {weights}")
        axis.grid(visible=True)
    return made
