"""One step: gather gradients, look for NaN, clip, and hand everything to the engines."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from varlearn.core.rule import Rule
from varlearn.optim.engine.plan import Guard, GuardedPlan, Plan, Row, StepSettings, is_guarded
from varlearn.optim.engine.triton.capturing import is_capturing, refuse
from varlearn.optim.hyper import stays_on_device
from varlearn.optim.lr_history import LrHistory
from varlearn.optim.ranks import fsdp
from varlearn.optim.sampling.sample import Sample
from varlearn.optim.sampling.sample_average import SampleAverage
from varlearn.optim.saturation import EVERY, Saturation

Group = dict[str, Any]
Work = list[tuple[Plan, list[Row]]]

_NEEDS_HOST = (
    "the host must know something of it: nonfinite='raise', several samples, several ranks, or parameters that another "
    "engine computes or that are on several devices"
)

_log = logging.getLogger("varlearn")


class Stepper:
    """Takes the steps of an optimizer and counts those that it drops.

    Args:
        rule: of the optimizer.
        hyper: (parameter group, number of the step) -> the scalars of the rule.

    Attributes:
        skipped: steps that were dropped for NaN or infinite gradients.
        saturation: recovers from gradients that are finite but too large.
        rates: the learning rates of the steps.
    """

    def __init__(self, rule: Rule, hyper: Callable[[Group, int], Any]) -> None:
        self._hyper = hyper
        self.skipped = 0
        self.saturation = Saturation(rule)
        self.rates = LrHistory()

    def take(
        self,
        average: SampleAverage,
        plans: Sequence[Plan],
        groups: Sequence[Group],
        place: Callable[[], Sequence[int]],
        scale: Tensor | None = None,
        overflow: Tensor | None = None,
        unclip: float | Tensor = 1.0,
        then: Callable[[], Sample | None] | None = None,
    ) -> Sample | None:
        """Update mean and state, or drop the step and leave them unchanged.

        Args:
            average: the samples and their gradients.
            plans: for the parameters that may have a gradient.
            groups: all parameter groups.
            place: where this rank is in training; asked for sharded parameters, whose ranks compare it.
            scale: GradScaler's loss scale.
            overflow: GradScaler's flag: above 0 the step is dropped.
            unclip: factor that undoes the user's clipping, for hhat.
            then: makes the sample that is to be in the weights after the step, when the step is counted.

        Returns:
            The sample that the weights show now, if the step has drawn one.
        """
        guarded = _guarded(plans, groups, average)
        is_captured = bool(plans) and is_capturing(plans[0].members[0].param.device)
        if is_captured and guarded is None:
            refuse(plans[0].members[0].param.device, _NEEDS_HOST)
        if guarded is None and overflow is not None and float(overflow) > 0.0:
            self.skipped += 1  # GradScaler lowers its scale and goes on
            return None
        work = _gather(average, plans)
        if guarded is None and not _all_finite(work, average, place):
            self._drop(work, groups)
            return None
        unscale = 1.0 if scale is None or guarded is not None else 1.0 / float(scale)
        clip = {id(group): 1.0 for group in groups} if guarded is not None else _clip_factors(work, groups, unscale)
        norm = _norm(work, groups) if guarded is not None else None
        undo = unclip if guarded is not None and isinstance(unclip, Tensor) else None
        unclip = 1.0 if undo is not None else float(unclip)
        known: dict[tuple[int, int], StepSettings] = {}
        settings: list[list[StepSettings]] = []
        for plan, rows in work:
            settings.append([])
            for k, grad, hhat in rows:
                param, state, group, _ = plan.members[k]
                state["step"] += 1
                which = id(group), state["step"]
                if which not in known:
                    lr = group["lr"] if guarded is not None and stays_on_device(group["lr"]) else None
                    factor = -unscale if group["maximize"] else unscale
                    known[which] = self._settings(group, average, which[1], factor, clip[id(group)], unclip, lr)
                    if guarded is not None and group["max_grad_norm"] is not None:
                        known[which] = known[which]._replace(max_norm=float(group["max_grad_norm"]))
                if hhat is not None and param not in average.given:
                    _follow(hhat, average.change(param, grad), known[which])
                settings[-1].append(known[which])
        self.rates.note(groups)
        looks_at_averages = not is_captured and any([step % EVERY == 0 for _, step in known])
        following = None if then is None or looks_at_averages or guarded is not None else then()
        for (plan, rows), its in zip(work, settings, strict=True):
            if guarded is None:
                plan.step(rows, its, None if following is None else following.noises)
            else:
                guarded.step(rows, its, guard=Guard(scale, overflow, norm, undo))
        if looks_at_averages:
            self.count_dropped(0 if guarded is None else guarded.settle())
            self.saturation.recover([plan.members[k] for plan, rows in work for k, _, _ in rows])
        return following

    def count_dropped(self, count: int) -> None:
        """Count steps that an accelerator has dropped without the host."""
        if count and not self.skipped:
            _log.warning("skipped %d step(s): NaN or infinite gradient", count)
        self.skipped += count

    def _settings(
        self,
        group: Group,
        average: SampleAverage,
        step: int,
        factor: float,
        clip: float,
        unclip: float,
        device_lr: Tensor | None,
    ) -> StepSettings:
        prior_mean = group.get("prior_mean")
        number = 0.0 if prior_mean in (None, "init") else float(prior_mean)
        how = group["hess_approx"], average.noise(group), number, factor, clip, unclip
        if device_lr is None:
            return StepSettings(self._hyper(group, step), *how)
        return StepSettings(self._hyper({**group, "lr": 1.0}, step), *how, device_lr)

    def _drop(self, work: Work, groups: Sequence[Group]) -> None:
        bad = [
            tuple(plan.members[row[0]].param.shape) for plan, rows in work for row in rows if not plan.all_finite([row])
        ]
        first = bad[0] if bad else "(of another rank's shard)"
        self.skipped += 1
        if any(group["nonfinite"] == "raise" for group in groups):
            raise FloatingPointError(
                f"NaN or infinite gradient in {len(bad)} parameter(s), the first of shape {first}; state and weights "
                "are unchanged. Lower lr, raise hess_init or ess, or pass nonfinite='skip' to drop such steps"
            )
        if self.skipped == 1:
            _log.warning("skipped a step: NaN or infinite gradient in %d parameter(s), first %s", len(bad), first)


def _gather(average: SampleAverage, plans: Sequence[Plan]) -> Work:
    """The rows of each plan: its trainable parameters that have a gradient."""
    work: Work = []
    estimates = average.estimates
    for plan in plans:
        grads = average.gradients([member.param for member in plan.members])
        rows: list[Row] = []
        for k, (member, grad) in enumerate(zip(plan.members, grads, strict=True)):
            if grad is not None and member.param.requires_grad:
                rows.append((k, grad, estimates.get(member.param) if estimates else None))
        work.append((plan, rows))
    return work


def _guarded(plans: Sequence[Plan], groups: Sequence[Group], average: SampleAverage) -> GuardedPlan | None:
    """The plan, if its device can decide whether to drop the step, and the host needs to know nothing before it.

    An error to raise, hhat that follows the gradient and other ranks' shards are known on the host.
    """
    plan = plans[0] if len(plans) == 1 else None
    if plan is None or not is_guarded(plan) or average.estimates:
        return None
    needs_host = any([group["nonfinite"] != "skip" for group in groups])
    return None if needs_host or _has_shards(average) else plan


def _all_finite(work: Work, average: SampleAverage, place: Callable[[], Sequence[int]]) -> bool:
    """Whether no gradient and no hhat is NaN or infinite, on any rank that has a part of a parameter."""
    finite = all([plan.all_finite(rows) for plan, rows in work])
    if not _has_shards(average):
        return finite
    return fsdp.all_agree([member.param for plan, _ in work for member in plan.members], finite, place())


def _has_shards(average: SampleAverage) -> bool:
    return any([sample.is_sharded for sample in average.samples])


def _clip_factors(work: Work, groups: Sequence[Group], unscale: float) -> dict[int, float]:
    """Id of a group -> the factor that brings ghat to `max_grad_norm`, over the gradients of all groups."""
    factors = {id(group): 1.0 for group in groups}
    grads = [grad for _, rows in work for _, grad, _ in rows]
    if grads and any([group["max_grad_norm"] is not None for group in groups]):
        norms = torch._foreach_norm(grads, dtype=torch.float64)
        squares = torch.stack(norms).cpu().square().view(-1, 1)
        params = [plan.members[k].param for plan, rows in work for k, _, _ in rows]
        total = math.sqrt(float(fsdp.combined(params, squares, "sum"))) * unscale
        for group in groups:
            if group["max_grad_norm"] is not None:
                factors[id(group)] = min(1.0, float(group["max_grad_norm"]) / (total + 1e-6))
    return factors


def _norm(work: Work, groups: Sequence[Group]) -> Tensor | None:
    """The norm of all gradients as a tensor, if it is needed; the host does not read it."""
    grads = [grad for _, rows in work for _, grad, _ in rows]
    if not grads or all([group["max_grad_norm"] is None for group in groups]):
        return None
    return torch.stack(torch._foreach_norm(grads, dtype=torch.float64)).square().sum().sqrt().float().view(1)


def _follow(hhat: Tensor, change: Tensor | None, settings: StepSettings) -> None:
    """Scale a mean of hhat, in place, as the gradient was scaled since: by the user, by a loss scale, by maximize."""
    factor = None if settings.grad_factor == 1.0 else settings.grad_factor
    for scale in (change, factor):
        if scale is not None:
            hhat.mul_(scale if settings.approximation == "reparam" else scale * scale)
