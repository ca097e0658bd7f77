"""SWAG (Maddox et al., 2019): SGD, and a Gaussian of the weights that it visits at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from varlearn.methods.method import Batch, Facts, Training
from varlearn.methods.sgd import SGDMethod
from varlearn.methods.shared_settings import Optim
from varlearn.setting_checks import Rule, at_least, not_negative

if TYPE_CHECKING:
    from varlearn.approximations import SWAG
    from varlearn.posterior import DiagGaussian, LowRankGaussian


@dataclass(frozen=True)
class SWAGSettings(Optim):
    """Settings of SWAG.

    Attributes:
        lr: peak learning rate of SGD before the collection; the schedule falls from it to `collect_lr`.
        rank: K, the deviations from the mean that are kept, the latest ones.
        covariance: "low_rank" or "diagonal".
        collect: share of the steps, at the end, in which weights are collected.
        collect_lr: the constant learning rate of these steps.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {
        "rank": at_least(2, "20 is the paper's"),
        "collect": ("> 0 and <= 1", lambda value: 0.0 < value <= 1.0, "0.2 is the paper's"),
        "collect_lr": not_negative("0.01 is the paper's"),
    }

    name: str = "swag"
    lr: float = 0.05
    rank: int = 20
    covariance: Literal["low_rank", "diagonal"] = "low_rank"
    collect: float = 0.2
    collect_lr: float = 0.01


class SWAGMethod(SGDMethod[SWAGSettings]):
    """One snapshot an epoch in the last fifth of the run; where that is less than two epochs, one in its middle too.

    >>> facts = Facts(n=100, batch_size=10, steps=500, task="classification")
    >>> method = SWAGMethod(SWAGSettings())
    >>> [step for step in range(501) if method.is_due(step, facts)]
    [410, 420, 430, 440, 450, 460, 470, 480, 490, 500]
    """

    name = "swag"
    label = "SWAG"
    cost = "forward and backward pass per step; rank + 3 copies of the weights"
    Settings = SWAGSettings
    averages = True

    def __init__(self, settings: SWAGSettings) -> None:
        super().__init__(settings)
        self._collection: SWAG | None = None

    @property
    def collection(self) -> SWAG:
        """What has been collected."""
        if self._collection is None:
            from varlearn.approximations import SWAG

            self._collection = SWAG(self.settings.rank)
        return self._collection

    def first_step(self, facts: Facts) -> int:
        """The number of steps before the collection begins; at least two are left for it."""
        return max(0, min(round((1.0 - self.settings.collect) * facts.steps), facts.steps - 2))

    def is_due(self, step: int, facts: Facts) -> bool:
        """Whether weights are collected after this many steps."""
        first = self.first_step(facts)
        every = min(max(1, facts.n // facts.batch_size), max(1, (facts.steps - first) // 2))
        return step > first and (facts.steps - step) % every == 0

    def lr(self, step: int, facts: Facts, peak: float, schedule: Callable[[int, int], float]) -> float:
        """The run's schedule from `lr` to `collect_lr` until the collection begins, and `collect_lr` from then on."""
        low, first = self.settings.collect_lr, self.first_step(facts)
        return low if step >= first else low + (peak - low) * schedule(step, first)

    def after_step(self, training: Training) -> None:
        """Take a snapshot when it is due."""
        if self.is_due(training.step, training.facts):
            self.collection.collect(training.model)

    def finish(self, training: Training, batches: Iterable[Batch]) -> LowRankGaussian | DiagGaussian:
        """The Gaussian of the snapshots, with BatchNorm's statistics at its mean."""
        return self.collection.posterior(
            training.model, batches, covariance=self.settings.covariance, forward=training.forward
        )

    def diagnostics(self, training: Training) -> dict[str, Any]:
        """How many snapshots there are."""
        return {"collected": self.collection.count}

    def state_dict(self) -> dict[str, Any]:
        """The collection."""
        return self.collection.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a collection."""
        self.collection.load_state_dict(state)
