"""From a plan to merged tensors, read piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, promote_types

from varlearn.merging.curvature_units import Units
from varlearn.merging.merge_checks import check_finite_merge
from varlearn.merging.merge_plan import MergePlan, Step
from varlearn.merging.stored_model import StoredModel
from varlearn.merging.tensor_merge import CURVED, PIECE, Reader, TensorInputs, merged_pieces
from varlearn.posterior.draw import positions
from varlearn.types import Params


def shard_pieces(
    plan: MergePlan, steps: Sequence[Step], report: Callable[[int], None]
) -> Iterator[tuple[str, Iterator[Tensor]]]:
    """The tensors of a shard with their names; `report` is called with the bytes that are done."""
    rank = positions(step.name for step in plan.steps if step.merged)
    done = 0

    def counted(step: Step) -> Iterator[Tensor]:
        nonlocal done
        for piece in _merged(plan, step, rank[step.name]) if step.merged else _kept(plan, step):
            done += piece.numel() * step.dtype.itemsize
            yield piece
            report(done)

    for step in steps:
        yield step.name, counted(step)


def _kept(plan: MergePlan, step: Step) -> Iterator[Tensor]:
    for start in range(0, step.shape.numel(), PIECE):
        yield plan.base.tensors.read(step.name, start, start + PIECE)


def _merged(plan: MergePlan, step: Step, position: int) -> Iterator[Tensor]:
    def reader(model: StoredModel) -> Reader:
        return lambda start, stop: model.tensors.read(step.name, start, stop)

    wide = promote_types(plan.base.tensors.entry(step.name).dtype, step.dtype)

    def curvature(model: StoredModel) -> tuple[Reader, Units]:
        hess = model.hess
        assert hess is not None
        return (lambda start, stop: hess.read(step.name, start, stop)), model.units()

    method, base, prior = plan.settings.method, plan.base, plan.base_hess
    at_base = method == "hessian" and prior is None and base.hess is not None and step.name in base.hess
    grams = None
    if method == "regmean" and all(model.grams is not None and step.name in model.grams for model in plan.models):
        width = (step.shape[-1], step.shape[-1])
        grams = [model.grams.read(step.name).view(width) for model in plan.models if model.grams is not None]
    inputs = TensorInputs(
        step.shape,
        position,
        lambda start, stop: base.tensors.read(step.name, start, stop).to(wide),
        [reader(model) for model in plan.models],
        [curvature(model) for model in plan.models] if method in CURVED else [],
        curvature(base) if at_base else float(prior or 0.0),
        grams,
    )
    for piece in merged_pieces(plan.settings, inputs):
        piece = piece.to(step.dtype)
        check_finite_merge(step.name, piece, plan.settings.alpha)
        yield piece


def merged_weights(plan: MergePlan) -> Params:
    """The merged model in memory, read piece by piece: its weights and buffers, under all their names."""
    out: Params = {}
    rank = positions(step.name for step in plan.steps if step.merged)
    for step in plan.steps:
        pieces = _merged(plan, step, rank[step.name]) if step.merged else _kept(plan, step)
        whole = torch.empty(step.shape.numel(), dtype=step.dtype)
        place = 0
        for piece in pieces:
            whole[place : place + piece.numel()] = piece
            place += piece.numel()
        out[step.name] = whole.view(step.shape)
    return out | {alias: out[name] for alias, name in plan.base.tensors.aliases.items() if name in out}
