"""What methods have in common whose gradients are taken at samples of the weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from varlearn.methods.method import Batch, Facts, Method, S, Training
from varlearn.methods.pass_count import PassCount

if TYPE_CHECKING:
    from torch import Tensor

    from varlearn.optim.variational import VariationalOptimizer
    from varlearn.posterior import DiagGaussian


class VariationalMethod(Method[S]):
    """A method with an optimizer of the class `VariationalOptimizer`, which learns a Gaussian.

    Each micro-batch has `samples` fresh samples of the weights, each in its own block. The optimizer averages the
    gradients of the blocks, so the loss is not divided.
    """

    clips_itself: ClassVar[bool] = True

    def __init__(self, settings: S) -> None:
        super().__init__(settings)
        self._passes = PassCount()

    def arguments(self, facts: Facts) -> dict[str, Any]:
        """What the optimizers of all variational methods are made with: lambda = n where `ess` is None."""
        settings = self.settings
        return {
            "lr": settings.lr,
            "ess": float(facts.n) if settings.ess is None else settings.ess,
            "hess_init": settings.hess_init,
            "betas": (settings.beta1, settings.beta2),
            "weight_decay": settings.weight_decay,
            "mc_samples": settings.samples,
            "seed": facts.seed,
            "max_grad_norm": facts.max_grad_norm,
        }

    def gradients(self, training: Training, batch: Batch) -> list[Tensor]:
        """One backward pass at each sample of the weights."""
        samples, losses = self.settings.samples, []
        for sample in range(samples):
            with _optimizer(training).sampled_params(train=True):
                draw = self._passes.next(training.step)
                losses.append(self.sample_pass(training, batch, draw, sample + 1 < samples))
        return losses

    def sample_pass(self, training: Training, batch: Batch, draw: int, more: bool) -> Tensor:
        """Forward and backward at one sample of the weights; returns the loss.

        Args:
            training: the run, inside a training block.
            batch: inputs and targets.
            draw: number of this pass in the run, for what is drawn besides the weights.
            more: whether another backward pass of this micro-batch follows.
        """
        return training.backward(batch, share=1.0, more=more)

    def finish(self, training: Training, batches: Iterable[Batch]) -> DiagGaussian:
        """The Gaussian in the optimizer's state."""
        from varlearn.posterior import DiagGaussian

        return DiagGaussian.from_optimizer(training.model, training.optimizer)

    def gaussian(self, training: Training) -> DiagGaussian:
        """The Gaussian in the optimizer's state."""
        from varlearn.posterior import DiagGaussian

        return DiagGaussian.from_optimizer(training.model, training.optimizer)

    def diagnostics(self, training: Training) -> dict[str, Any]:
        """Statistics of h, sigma and the step; by number of the parameter group where there are several."""
        diagnose = getattr(training.optimizer, "diagnostics", None)
        if diagnose is None:
            return {}
        groups = [{k: v for k, v in asdict(group).items() if v is not None and k != "findings"} for group in diagnose()]
        return groups[0] if len(groups) == 1 else {str(number): group for number, group in enumerate(groups)}


def _optimizer(training: Training) -> VariationalOptimizer:
    return training.optimizer  # type: ignore[return-value]
