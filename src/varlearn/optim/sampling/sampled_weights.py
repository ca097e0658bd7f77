"""Samples are written into the weights and taken out again; the mean is never lost."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from varlearn.core.shards import reshard
from varlearn.optim.engine.plan import Plan
from varlearn.optim.sampling.members import Members
from varlearn.optim.sampling.sample import Sample


class SampledWeights:
    """Which samples are open, and which of them the weights show: the one that was opened last.

    Args:
        members: makes the plans that write and restore.

    Attributes:
        open: open samples, oldest first.
    """

    def __init__(self, members: Members) -> None:
        self.open: list[Sample] = []
        self._members = members
        self._shown: Sample | None = None
        self._plans: Sequence[Plan] = ()  # that may hold a sample

    @property
    def show_training_sample(self) -> bool:
        """Whether the sample in the weights is there for its gradients."""
        return bool(self.open) and self.open[-1].train

    def put_in(self, sample: Sample) -> None:
        """Open a sample and write it into the weights. If this fails, `take_out` restores what was there."""
        self.open.append(sample)
        self._show(sample)
        if sample.products is not None:
            sample.products.open()

    def take_out(self, sample: Sample) -> None:
        """Close a sample: the weights show the youngest one that is still open, or the mean.

        Call it again if it is interrupted: what was done is not done twice.
        """
        if sample in self.open:
            self.open.remove(sample)
        if sample.products is not None:
            sample.products.close()
        self._show(self.open[-1] if self.open else None)

    def replace(self, sample: Sample) -> None:
        """A step has put this sample into the weights, instead of the one that is open."""
        torch.clear_autocast_cache()
        self.open, self._shown = [sample], sample
        if sample.products is not None:
            sample.products.close()  # opening twice would collect twice
            sample.products.open()

    @torch.inference_mode(False)
    @torch.no_grad()
    def _show(self, sample: Sample | None) -> None:
        if self._shown is sample and sample is not None:
            return
        torch.clear_autocast_cache()  # autocast keeps casts of the weights, and would not see them change
        if any([each is not None and each.is_sharded for each in (sample, self._shown)]):
            reshard()
        for plan in self._plans:
            plan.restore()
        self._shown, self._plans = None, ()
        if sample is not None:
            plans = self._members.plans(sample.members)
            self._shown, self._plans = sample, plans
            for plan in plans:
                plan.draw(sample.noises)
