"""The parameters of an optimizer that take the packed path: how they are cut and joined, from one step to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from varlearn.core.noise import fold_in
from varlearn.optim import packed
from varlearn.optim.addresses import Addresses, Row
from varlearn.optim.layout import Companions, piece_size
from varlearn.optim.pieces import Piece, cut
from varlearn.optim.tasks import Noise

Group = dict[str, Any]


class Slot(NamedTuple):
    """The tensors of one parameter: `mean` is a copy, and `score` is there from the first training sample on."""

    at: Addresses
    param: Tensor
    mean: Tensor
    momentum: Tensor
    hess: Tensor
    score: Tensor | None


class Batch:
    """Puts a sample into the parameters of a list, and takes it out again.

    Attributes:
        members: what is in the list, with the group of each.
    """

    def __init__(self, members: Sequence[tuple[Addresses, Group]], before: Batch | None = None) -> None:
        self.members = list(members)
        self._groups = {id(at.param): group for at, group in members}
        self._copies = Companions() if before is None else before._copies
        self._scores = Companions() if before is None else before._scores
        self._trains = before is not None and before._trains
        self._pieces = self._arrange()
        self._count = 0  # of pieces whose mean was copied, and that may hold a sample
        self._scored: dict[int, Mapping[int, Noise]] = {}  # by id of a group: of which sample the scores are

    def _arrange(self) -> list[tuple[Piece[Slot], Group]]:
        """Each piece with its group."""
        params = [at.param for at, _ in self.members]
        copies = self._copies.of(params, like=params)
        scored = [at for at, group in self.members if self._trains and group["hess_approx"] == "reparam"]
        scores = self._scores.of([at.param for at in scored], like=[at.state["hess"] for at in scored])
        score_of = {id(at): score for at, score in zip(scored, scores, strict=True)}
        alike: dict[tuple[int, torch.device, torch.dtype, int], tuple[Group, list[Slot]]] = {}
        for (at, group), copy in zip(self.members, copies, strict=True):
            hess = at.state["hess"]
            slot = Slot(at, at.param, copy, at.state["momentum"], hess, score_of.get(id(at)))
            # Those of odd size by themselves: between them there are gaps.
            kind = id(group), hess.device, hess.dtype, at.size % 2
            alike.setdefault(kind, (group, []))[1].append(slot)
        return [
            (Piece(segments), group)
            for (_, device, _, _), (group, slots) in alike.items()
            for segments in cut(slots, piece_size(device))
        ]

    def put_in(self, noises: Mapping[int, Noise], train: bool) -> None:
        """Keep the means and perturb the parameters.

        Args:
            noises: id of a group -> key of the draw, to which each parameter's index is added, and the scale of sigma.
            train: whether the scores are kept, for the step.
        """
        if train and not self._trains:
            self._trains = True
            self._pieces = self._arrange()
        if train:
            self._scored = {}
        scored: dict[int, Mapping[int, Noise]] = {}
        for piece, group in self._pieces:
            noise = noises[id(group)]
            piece.begin()
            torch._foreach_copy_(piece.tensors("mean"), piece.tensors("param"))
            self._count += 1
            keep_score = train and group["hess_approx"] == "reparam" and piece.first.score is not None
            packed.draw_piece(piece, _keys(piece, noise), noise.scale, 1.0, keep_score)
            if keep_score:
                scored[id(group)] = noises
        self._scored |= scored

    def take_out(self) -> None:
        """Put the means back. Call it again if it is interrupted; without a sample it does nothing."""
        if not self._count:
            return
        if self._count == len(self._pieces):
            params = [at.param for at, _ in self.members]  # wherever they are by now
            torch._foreach_copy_(params, [self._copies[param] for param in params])
        else:
            for piece, _ in self._pieces[: self._count]:
                torch._foreach_copy_(piece.tensors("param"), piece.tensors("mean"))
        self._count = 0

    def complete(self, having: Iterable[Addresses]) -> set[int]:
        """Ids of the addresses, among these, that fill whole pieces and are at the same step: `step` can take them."""
        ids = {id(at) for at in having}
        taken: set[int] = set()
        for piece, _ in self._pieces:
            own = [slot.at for slot in piece.tasks]
            if all(id(at) in ids for at in own) and len({at.state["step"] for at in own}) == 1:
                taken.update(map(id, own))
        return taken

    def step(self, rows: Iterable[Row], noises: Mapping[int, Noise]) -> None:
        """Update each parameter (lines 3 to 7).

        Args:
            rows: of what `complete` gave.
            noises: of the sample at which the gradients were taken.
        """
        by_id = {id(row.at): row for row in rows}
        for piece, group in self._pieces:
            first = by_id.get(id(piece.first.at))
            if first is None:
                continue
            piece.begin()
            kind = first.kind
            has_score = self._scored.get(id(group)) is noises and kind.approximation == "reparam"
            grad = piece.join([by_id[id(slot.at)].grad for slot in piece.tasks])
            given = packed.Given(grad, None, piece.flat("score") if has_score else None, kind.prior_mean)
            packed.step_piece(piece, "param", given, _keys(piece, kind.noise), kind)

    def score_of(self, param: Tensor, noises: Mapping[int, Noise]) -> Tensor | None:
        """The score of a parameter in a sample, where its draw kept it."""
        group = self._groups.get(id(param))
        return self._scores[param] if group is not None and self._scored.get(id(group)) is noises else None


def _keys(piece: Piece[Slot], noise: Noise) -> list[int]:
    return [fold_in(noise.key, slot.at.index) for slot in piece.tasks]
