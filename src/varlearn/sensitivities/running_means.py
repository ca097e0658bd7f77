"""Sensitivities over the course of training: running means by example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from varlearn.sensitivities.loo_estimates import Sensitivity
from varlearn.sensitivities.token_estimates import TokenSensitivity

COLUMNS = ("score", "paper_score", "loss", "loo_loss")


class SensitivityTracker:
    """Means over checkpoints of what `sensitivity` says about each example, by id.

    A network that has learned its examples by heart is sensitive to none of them, so the last checkpoint alone ranks
    examples worse than the mean over training does. Call `update` after each epoch, say. Examples may come in any
    order, and each time in another selection.

    Args:
        probs: also keep the mean of `loo_probs`, N times C numbers, which cleanlab takes.

    Attributes:
        ids: of the examples seen so far, in ascending order, shape (N,).
        counts: how many updates each example was in, shape (N,).

    >>> even, wrong = torch.tensor([[0.0, 0.0]]), torch.tensor([[-0.5, 0.5]])
    >>> tracker = SensitivityTracker()
    >>> for score in (0.1, 0.3):
    ...     tracker.update(Sensitivity(torch.tensor([7]), torch.tensor([0]), even, wrong, wrong, torch.tensor([score])))
    >>> tracker.ids, tracker.counts, tracker.score
    (tensor([7]), tensor([2]), tensor([0.2000], dtype=torch.float64))
    """

    def __init__(self, *, probs: bool = True) -> None:
        self._keeps_probs = probs
        self.ids = torch.zeros(0, dtype=torch.int64)
        self.counts = torch.zeros(0, dtype=torch.int64)
        self._targets: Tensor | None = None
        self._means: dict[str, Tensor] = {}

    def __repr__(self) -> str:
        most = int(self.counts.max()) if len(self.counts) else 0
        return f"SensitivityTracker of {len(self.ids)} examples, at most {most} updates each"

    @property
    def score(self) -> Tensor:
        """The mean score, shape (N,)."""
        return self._mean("score")

    @property
    def paper_score(self) -> Tensor:
        """The mean of the sum of |V e|, shape (N,)."""
        return self._mean("paper_score")

    @property
    def loss(self) -> Tensor:
        """The mean loss, shape (N,)."""
        return self._mean("loss")

    @property
    def loo_loss(self) -> Tensor:
        """The mean leave-one-out loss, shape (N,)."""
        return self._mean("loo_loss")

    @property
    def loo_probs(self) -> Tensor:
        """The mean of the leave-one-out probabilities, shape (N, C); for classification, unless `probs` is False."""
        return self._mean("loo_probs")

    def update(self, found: Sensitivity | TokenSensitivity) -> None:
        """Take the sensitivities of some examples at one checkpoint.

        Raises:
            ValueError: if an id comes twice, or an example's label is not what it was; nothing is changed then.
        """
        order = found.ids.argsort()
        ids = found.ids[order]
        if len(ids) > 1 and bool((ids[1:] == ids[:-1]).any()):
            twice = int(ids[1:][ids[1:] == ids[:-1]][0])
            raise ValueError(f"id {twice} comes twice, and every example must have its own; number them 0 .. N - 1")
        values = {name: getattr(found, name)[order].double() for name in COLUMNS}
        targets = None
        if isinstance(found, Sensitivity) and not found.targets.is_floating_point():
            targets = found.targets[order]
            if self._keeps_probs:
                values["loo_probs"] = found.loo_probs[order].float()
        self._check_targets(ids, targets)
        self._make_room(ids, values, targets)
        rows = torch.searchsorted(self.ids, ids)
        self.counts[rows] += 1
        for name, value in values.items():
            mean, count = self._means[name][rows], self.counts[rows].to(value.dtype)
            self._means[name][rows] = mean + (value - mean) / count.view(-1, *[1] * (value.dim() - 1))

    def state_dict(self) -> dict[str, Any]:
        """All that it has collected, as tensors."""
        state: dict[str, Any] = {"ids": self.ids, "counts": self.counts, "means": dict(self._means)}
        return state if self._targets is None else {**state, "targets": self._targets}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.ids, self.counts = state["ids"].clone(), state["counts"].clone()
        self._means = {name: value.clone() for name, value in state["means"].items()}
        self._targets = state["targets"].clone() if "targets" in state else None

    def _mean(self, name: str) -> Tensor:
        if name not in self._means:
            why = "no update has had classes, or probs=False" if name == "loo_probs" else "there was no update yet"
            raise ValueError(f"{name} is not known: {why}; call update(sensitivity(...)) first")
        return self._means[name]

    def _check_targets(self, ids: Tensor, targets: Tensor | None) -> None:
        if not len(self.ids):
            return
        if (targets is None) != (self._targets is None):
            raise ValueError(
                "some updates have labels of classes and others do not; a tracker belongs to one task, make another"
            )
        if targets is None or self._targets is None:
            return
        rows = torch.searchsorted(self.ids, ids).clamp(max=len(self.ids) - 1)
        bad = (self.ids[rows] == ids) & (self._targets[rows] != targets)
        if bad.any():
            first = int(bad.nonzero()[0])
            was = int(self._targets[rows[first]])
            raise ValueError(
                f"label {int(targets[first])} of example {int(ids[first])} was {was} before; "
                "ids must name the same examples in every update, and labels must not change"
            )

    def _make_room(self, ids: Tensor, values: Mapping[str, Tensor], targets: Tensor | None) -> None:
        """Rows of zeros for ids that are new, in their place."""
        if len(self.ids) == len(ids) and torch.equal(self.ids, ids) and self._means.keys() == values.keys():
            return
        everything = torch.cat([self.ids, ids]).unique()
        place = torch.searchsorted(everything, self.ids)

        def grown(old: Tensor | None, like: Tensor) -> Tensor:
            new = torch.zeros((len(everything), *like.shape[1:]), dtype=like.dtype)
            if old is not None:
                new[place] = old
            return new

        self._means = {name: grown(self._means.get(name), value) for name, value in values.items()}
        self.counts = grown(self.counts, self.counts)
        if targets is not None:
            self._targets = grown(self._targets, targets)
            self._targets[torch.searchsorted(everything, ids)] = targets
        self.ids = everything
