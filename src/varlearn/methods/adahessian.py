"""AdaHessian (Yao et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from varlearn.methods.curvature_passes import hutchinson_pass
from varlearn.methods.method import Batch, Facts, Method, Training
from varlearn.methods.parameter_groups import parameter_groups
from varlearn.methods.pass_count import PassCount
from varlearn.methods.shared_settings import Optim
from varlearn.setting_checks import Rule, not_negative

if TYPE_CHECKING:
    from torch import Tensor, nn

    from varlearn.optim import AdaHessian


@dataclass(frozen=True)
class AdaHessianSettings(Optim):
    """Settings of AdaHessian; the defaults are the paper's for image classification.

    Attributes:
        lr: peak learning rate.
        weight_decay: decoupled decay.
        beta2: average of the Hessian's squared diagonal.
        hessian_power: what the root mean square of the diagonal is raised to.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {"hessian_power": not_negative("1 is usual")}

    name: str = "adahessian"
    lr: float = 0.05
    beta2: float = 0.999
    hessian_power: float = 1.0


class AdaHessianMethod(Method[AdaHessianSettings]):
    """Adam with Hutchinson's diagonal in place of the gradient; the final weights are the result.

    >>> from torch import nn
    >>> facts = Facts(n=100, batch_size=10, steps=50, task="classification")
    >>> AdaHessianMethod(AdaHessianSettings()).optimizer(nn.Linear(1, 1), facts).param_groups[0]["weight_decay"]
    0.0002
    """

    name = "adahessian"
    label = "AdaHessian"
    cost = "forward and backward pass, and two more to differentiate twice; two copies of the weights, and the graph"
    Settings = AdaHessianSettings
    passes = 2
    averages = False
    clips_itself = True

    def __init__(self, settings: AdaHessianSettings) -> None:
        super().__init__(settings)
        self._passes = PassCount()

    def optimizer(self, model: nn.Module, facts: Facts) -> AdaHessian:
        """AdaHessian without averaging over neighbouring weights."""
        from varlearn.optim import AdaHessian

        settings = self.settings
        return AdaHessian(
            parameter_groups(model, settings),
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            hessian_power=settings.hessian_power,
            seed=facts.seed,
            max_grad_norm=facts.max_grad_norm,
        )

    def gradients(self, training: Training, batch: Batch) -> list[Tensor]:
        """One forward pass, and its loss differentiated twice."""
        return [hutchinson_pass(training, batch, self._passes.next(training.step), share=None)]
