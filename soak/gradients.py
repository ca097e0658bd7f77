"""Bad gradients: the posterior stays finite, and later steps are those of a run that never saw the bad step."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import torch
from torch import Tensor

from soak.faulty_training import Plan, Training, random_plan
from soak.part import Outcome, Part, chance
from soak.ranks import RankPool
from varlearn.posterior import DiagGaussian

_RANKS = (1, 1, 2, 1, 1, 3)  # of case number 0, 1, ...; then again
_TOLERANCES = {"float64": 1e-8, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.02}


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """Each number is a training run; every third one is on two or three ranks."""
    with RankPool(max(_RANKS)) as pool:
        for number in numbers:
            plan = random_plan(chance(seed, number), _RANKS[number % len(_RANKS)])
            yield judge(plan, pool)


def judge(plan: Plan, pool: RankPool) -> Outcome:
    """Run a plan on its ranks and say what was wrong."""
    kind = f"{plan.optimizer.split(',')[0]}, {plan.engine}, {plan.ranks} rank{'s' * (plan.ranks > 1)}"
    try:
        found = [run(plan)] if plan.ranks == 1 else pool.run(run, plan, plan.ranks)
    except Exception as error:
        return Outcome(kind, False, f"{type(error).__name__}: {error}: {plan}")
    wrong = [text for text, _ in found if text]
    if not wrong and not all(_same_on_ranks(plan, found[0][1], values) for _, values in found[1:]):
        wrong = ["ranks differ"]
    return Outcome(kind, not wrong, f"{'; '.join(wrong)}: {plan}" if wrong else "")


def _same_on_ranks(plan: Plan, first: list[Tensor], other: list[Tensor]) -> bool:
    """Bit for bit. Where ranks subtract noise of their own from the weights, up to the rounding of that."""
    if plan.memory == "fast" or plan.noise == "shared":
        return not any(_differ(one, two) for one, two in zip(first, other, strict=True))
    tolerance = 1e-12 if plan.dtype == "float64" else 1e-5
    return all(torch.allclose(one, two, rtol=tolerance, atol=tolerance) for one, two in zip(first, other, strict=True))


def run(plan: Plan, rank: int = 0) -> tuple[str, list[Tensor]]:
    """What is wrong with a run on this rank, if anything, and its weights and state."""
    logging.getLogger("varlearn").setLevel(logging.ERROR)  # each dropped step would warn
    training = Training(plan, rank=rank)
    spared = Training(plan, rank=rank)  # the oracle: the dropped steps are left out
    plain = Training(plan, engine="loop", rank=rank) if plan.engine != "loop" else None
    for step in range(plan.steps):
        training.step(step)
        for oracle in (spared, plain):
            if oracle is not None:
                oracle.skip(step) if step in plan.dropped else oracle.step(step)
        if any(_differ(ours, theirs) for ours, theirs in zip(training.values(), spared.values(), strict=True)):
            return f"step {step} is not the oracle's", training.values()
    return _wrong(plan, training, plain), training.values()


def _wrong(plan: Plan, training: Training, plain: Training | None) -> str:
    if training.opt.skipped_steps != len(plan.dropped):
        return f"{training.opt.skipped_steps} steps were dropped, not {len(plan.dropped)}"
    if training.opt.is_sampled:
        return "a sample is left in the weights"
    posterior = DiagGaussian.from_optimizer(training.model, training.opt)
    if not all(bool(tensor.isfinite().all()) for part in (posterior.mean, posterior.std) for tensor in part.values()):
        return "the posterior is not finite"
    if not training.evaluate():
        return "the loss at a sample is not finite"
    if plain is not None:
        tolerance = _TOLERANCES[plan.dtype]
        for ours, theirs in zip(training.values(), plain.values(), strict=True):
            if not torch.allclose(ours.double(), theirs.double(), rtol=tolerance, atol=tolerance):
                return f"off the loop's by {float((ours.double() - theirs.double()).abs().max()):.2g}"
    return ""


def _differ(one: Tensor, other: Tensor) -> bool:
    return not torch.equal(one, other)


PART = Part(
    name="gradients",
    promise="Bad gradients (NaN, inf, huge, denormal): finite posterior, later steps as without them, ranks agree",
    unit="runs",
    short=120,
    full=1000,
    cases=cases,
)
