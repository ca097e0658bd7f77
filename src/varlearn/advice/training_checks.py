"""Findings about the course of training: schedule, loss, h and ess."""

from __future__ import annotations

import math
from collections.abc import Iterator

from varlearn.advice import thresholds as limit
from varlearn.advice.finding import Finding
from varlearn.advice.run_facts import RunFacts


def not_finite(facts: RunFacts) -> Iterator[Finding]:
    """NaN or infinity in the loss, in the weights, or in too many gradients."""
    loss, bad, skipped, step = facts.loss_last, facts.nonfinite_weights, facts.skipped_steps or 0, facts.step or 0
    if bad:
        what = f"{bad:,} weight(s) are NaN or infinite."
    elif loss is not None and not math.isfinite(loss):
        what = f"The loss is {loss}" + (f" at step {step:,}." if step else ".")
    elif skipped > max(limit.SKIPPED_STEPS, limit.SKIPPED_SHARE * step):
        what = f"{skipped:,} of {step:,} steps were dropped because their gradients were NaN or infinite."
    else:
        return
    yield Finding(
        "not_finite",
        "error",
        what,
        "Usually an input or target is NaN, a logarithm or square root gets 0, or the learning rate is too large.",
        "Check the data with torch.isfinite first; if they are finite, divide lr by 10.",
    )


def summed_loss(facts: RunFacts) -> Iterator[Finding]:
    """A loss that is a sum over the batch, where IVON and VAdamW need a mean."""
    first, size, classes, growth = facts.loss_first, facts.batch_size, facts.classes, facts.loss_growth_with_batch
    if growth is not None:
        if growth < limit.SUM_GROWTH:
            return
        what = f"The loss of a batch is {growth:.2g} times the mean loss of its two halves."
    elif first is None or size is None or classes is None or classes < 2 or size < limit.SMALL_BATCH:
        return
    elif facts.ess is not None and facts.n is not None and facts.ess < limit.ESS_BELOW * facts.n:
        return  # the first loss is large because sigma is
    else:
        share = first / (size * math.log(classes))
        if not limit.SUM_PER_EXAMPLE[0] <= share <= limit.SUM_PER_EXAMPLE[1]:
            return
        chance = math.log(classes)
        what = f"The first loss is {first:.4g}; guessing among {classes} classes costs {chance:.3g} per example."
    yield Finding(
        "summed_loss",
        "error",
        what,
        "The loss looks like a sum over the batch. ess already multiplies by the number of examples, so h and the step "
        "are too large by the batch size.",
        'Use the mean over the batch: reduction="mean".',
    )


def diverged(facts: RunFacts) -> Iterator[Finding]:
    """A loss that is larger at the end than at the start, or than guessing."""
    first, last, classes = facts.loss_first, facts.loss_last, facts.classes
    start, peak, severity = facts.loss_start, facts.loss_peak, "error"
    if last is None or not math.isfinite(last):
        return
    chance = math.log(classes) if classes is not None and classes >= 2 else None
    if first is not None and last > first + (limit.LOSS_RISE - 1.0) * max(abs(first), 1.0):
        what = f"The loss rose from {first:.4g} to {last:.4g}."
    elif chance is not None and last > limit.WORSE_THAN_CHANCE * chance:
        what = f"The loss is {last:.4g}; guessing among {classes} classes gives {chance:.3g}."
    elif chance is not None and facts.nll_mean is not None and facts.nll_mean > limit.NLL_WORSE_THAN_CHANCE * chance:
        what = f"NLL at the mean is {facts.nll_mean:.4g}; guessing among {classes} classes gives {chance:.3g}."
    elif (
        facts.loss_guessing is not None
        and (facts.step is None or facts.step >= limit.SETTLED_STEPS)
        and last > facts.loss_guessing + limit.ABOVE_GUESSING
    ):
        what = f"The loss is {last:.4g}; always predicting the mean of the targets gives {facts.loss_guessing:.4g}."
    elif (
        start is not None
        and peak is not None
        and chance is not None
        and peak > limit.EXPLODED * max(start, chance)
        and not any(hess_runaway(facts))  # which tells the same
    ):
        what, severity = (
            f"The loss rose from {start:.4g} to {peak:.4g} while training, before it fell again.",
            "warning",
        )
    else:
        return
    rate = f" (it was {facts.lr_peak:g})" if facts.lr_peak is not None else ""
    yield Finding(
        "diverged",
        severity,
        what,
        f"Training diverged, usually because the learning rate is too large{rate}.",
        "Divide lr by 10; if it is already the preset's, warm it up over the first 5% of the steps.",
    )


def hess_runaway(facts: RunFacts) -> Iterator[Finding]:
    """An h that has grown far beyond its start."""
    if facts.hess_mean is None or facts.hess_init is None:
        return
    start = facts.hess_init + (facts.weight_decay or 0.0)
    if not facts.hess_mean > limit.HESS_RUNAWAY * start:
        return
    factor = facts.hess_mean / start
    yield Finding(
        "hess_runaway",
        "error",
        f"h is {facts.hess_mean:.4g} on average, {factor:,.0f} times its start (hess_init={facts.hess_init:g}).",
        "Gradients this large come from a diverging run. They make sigma and the steps almost 0, so training stops.",
        "Divide lr by 10; if the loss is healthy, raise hess_init to about the present h.",
    )


def hess_not_learned(facts: RunFacts) -> Iterator[Finding]:
    """An h that is still at its start, so that sigma is a guess."""
    moved, step = facts.hess_moved, facts.step
    if moved is None or step is None or step < limit.STEPS_TO_JUDGE or moved >= limit.HESS_MOVED:
        return
    if facts.noise_ratio is not None and facts.noise_ratio < limit.LITTLE_NOISE:
        return
    beta2 = facts.beta2
    reach = f" beta2={beta2:g} lets h forget {1.0 - beta2**step:.1%} of its start in that time." if beta2 else ""
    yield Finding(
        "hess_not_learned",
        "warning",
        f"h has moved {moved:.2%} from hess_init in {step:,} steps.",
        f"So sigma is still the first guess, and averaging over samples may be worse than the mean.{reach}",
        "Use a smaller beta2 (about 1 - 1/steps), varlearn.presets.short_run(n, steps), or varlearn.VAdamW.",
    )


def no_schedule(facts: RunFacts) -> Iterator[Finding]:
    """A learning rate that stays at its peak."""
    lr, peak, step, constant = facts.lr, facts.lr_peak, facts.step, facts.lr_constant_for
    if lr is None or peak is None or step is None or step < limit.STEPS_TO_JUDGE or peak <= 0.0:
        return
    finished = facts.steps is not None and step >= facts.steps
    stays = constant is not None and constant > limit.CONSTANT_SHARE * max(step, facts.steps or 0) and lr == peak
    if not stays and not (finished and lr > limit.FINAL_LR * peak):
        return
    still = "still " if lr == peak else ""
    yield Finding(
        "no_schedule",
        "warning",
        f"The learning rate is {still}{lr:g} after {step:,} steps, {lr / peak:.0%} of its peak.",
        "Unless it falls to nearly 0, the last steps still move the weights, and neither the mean nor sigma settles.",
        "Use a cosine schedule: torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps), stepped after every "
        "opt.step(); on the command line --train.schedule cosine.",
    )


def ess_far_from_n(facts: RunFacts) -> Iterator[Finding]:
    """A lambda that has little to do with the number of examples."""
    if facts.ess is None or facts.n is None:
        return
    ratio = facts.ess / facts.n
    if ratio < limit.ESS_BELOW:
        yield Finding(
            "ess_far_from_n",
            "warning",
            f"ess={facts.ess:g} is {ratio:.2g} times the {facts.n:,} training examples.",
            "The posterior is as wide as if there were only ess examples, so sampled weights predict badly.",
            f"Use ess={facts.n:g} or more.",
        )
    elif ratio > limit.ESS_ABOVE:
        yield Finding(
            "ess_far_from_n",
            "note",
            f"ess={facts.ess:g} is {ratio:.2g} times the {facts.n:,} training examples.",
            "The posterior is much narrower than the data justify, and h grows. Only finetuning needs such values.",
            f"Use ess between {facts.n:g} and {10 * facts.n:g} to get uncertainty from the weights.",
        )
