"""The Laplace approximation (MacKay, 1992; Daxberger et al., 2021): SGD, and a Gaussian fitted at its weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from varlearn.methods.method import Batch, Facts, Training
from varlearn.methods.sgd import SGDMethod
from varlearn.methods.shared_settings import Optim
from varlearn.setting_checks import Rule, positive

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from varlearn.approximations import Laplace
    from varlearn.posterior import DiagGaussian, KroneckerGaussian, LowRankGaussian


@dataclass(frozen=True)
class LaplaceSettings(Optim):
    """Settings of the Laplace approximation.

    Attributes:
        lr: peak learning rate of SGD.
        layers: "last" or "all". A regression, whose network ends in a variance, needs "all".
        structure: "full", "kron" (of the last layer) or "diag".
        prior: how the prior precision is chosen: "fixed", "marglik" for the largest marginal likelihood, or
            "validation" for the lowest NLL on validation data.
        prior_precision: the fixed one.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {"prior_precision": positive("10 is the paper's")}

    name: str = "laplace"
    lr: float = 0.1
    layers: Literal["last", "all"] = "last"
    structure: Literal["full", "kron", "diag"] = "full"
    prior: Literal["fixed", "marglik", "validation"] = "fixed"
    prior_precision: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers == "all" and self.structure == "kron":
            raise ValueError(
                "optim.structure='kron' is for the last layer; use optim.layers='last', or structure='diag'"
            )


class LaplaceMethod(SGDMethod[LaplaceSettings]):
    """SGD's weights as the mean; one pass over the data gives the curvature.

    >>> from torch import nn
    >>> facts = Facts(n=100, batch_size=10, steps=50, task="classification")
    >>> LaplaceMethod(LaplaceSettings(prior="validation")).optimizer(nn.Linear(1, 1), facts)
    Traceback (most recent call last):
    ...
    ValueError: optim.prior='validation' needs validation data; hold some out with data.validation=0.1, or use 'marglik'
    """

    name = "laplace"
    label = "Laplace"
    cost = "as SGD, and one forward pass over the data at the end; as many backward passes as outputs for all layers"
    Settings = LaplaceSettings
    averages = True

    def __init__(self, settings: LaplaceSettings) -> None:
        super().__init__(settings)
        self._is_checked = False

    def optimizer(self, model: nn.Module, facts: Facts) -> torch.optim.SGD:
        """SGD; refuses a choice by validation data where there are none."""
        if self.settings.prior == "validation" and not facts.held_out:
            raise ValueError(
                "optim.prior='validation' needs validation data; hold some out with data.validation=0.1, "
                "or use 'marglik'"
            )
        if self.settings.layers == "last" and facts.task == "regression":
            raise ValueError(
                "optim.layers='last' needs a network whose last layer is linear, and that of a regression ends in a "
                "variance; use optim.layers='all'"
            )
        return super().optimizer(model, facts)

    def gradients(self, training: Training, batch: Batch) -> list[Tensor]:
        """SGD's pass; before the first one a network is refused to which no curvature could be fitted at the end."""
        if not self._is_checked:
            from varlearn.approximations.laplace_fit import refuse_unfit

            layers, structure = self.settings.layers, self.settings.structure
            try:
                refuse_unfit(training.model, batch[0], layers, structure, training.forward)
            except ValueError as error:
                raise ValueError(f"optim.name='laplace': {error}") from None
            self._is_checked = True
        return super().gradients(training, batch)

    def finish(
        self, training: Training, batches: Iterable[Batch]
    ) -> DiagGaussian | KroneckerGaussian | LowRankGaussian:
        """The Gaussian at SGD's weights, under the prior that the settings choose."""
        from varlearn.approximations import fit_laplace

        settings = self.settings
        laplace = fit_laplace(
            training.model, batches, layers=settings.layers, structure=settings.structure, forward=training.forward
        )
        return laplace.posterior(self._precision(training, laplace))

    def _precision(self, training: Training, laplace: Laplace) -> float:
        match self.settings.prior:
            case "fixed":
                return self.settings.prior_precision
            case "marglik":
                return laplace.best_precision()
        from varlearn.prediction import predict, predict_regression, predict_tokens

        by: Any = {"classification": predict, "regression": predict_regression, "language": predict_tokens}
        return laplace.validated_precision(
            training.model,
            training.held_out or (),
            seed=training.facts.seed,
            by=by[training.facts.task],
            progress=False,
        )
