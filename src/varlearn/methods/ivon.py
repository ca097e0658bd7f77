"""IVON (Shen et al., 2024), the method of the paper."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from varlearn.methods.curvature_passes import gauss_newton_pass, hutchinson_pass
from varlearn.methods.method import Batch, Facts, Training
from varlearn.methods.parameter_groups import parameter_groups
from varlearn.methods.shared_settings import Optim
from varlearn.methods.variational_method import VariationalMethod

if TYPE_CHECKING:
    from torch import Tensor, nn

    from varlearn.optim import IVON

HessApprox = Literal[
    "reparam", "squared_gradient", "gauss_newton", "hutchinson", "price", "gradsq", "gaussnewton", "reparameterization"
]
_OTHER_NAMES = {
    "price": "reparam",
    "reparameterization": "reparam",
    "gradsq": "squared_gradient",
    "gaussnewton": "gauss_newton",
}


@dataclass(frozen=True)
class IVONSettings(Optim):
    """Settings of IVON.

    Attributes:
        hess_approx: how hhat is estimated: "reparam", the paper's; "squared_gradient", of the batch; "gauss_newton",
            the mean of single examples' squared gradients; or "hutchinson", a product of the Hessian with random
            signs. ivon-opt's "price" and "gradsq" mean the first two.
    """

    hess_approx: HessApprox = "reparam"

    def __post_init__(self) -> None:
        if isinstance(self.hess_approx, str):
            object.__setattr__(self, "hess_approx", _OTHER_NAMES.get(self.hess_approx, self.hess_approx))
        super().__post_init__()


class IVONMethod(VariationalMethod[IVONSettings]):
    """Gradients at samples of the weights, a Gaussian as the result.

    >>> from torch import nn
    >>> facts = Facts(n=100, batch_size=10, steps=50, task="classification")
    >>> IVONMethod(IVONSettings()).optimizer(nn.Linear(1, 1), facts).param_groups[0]["ess"]
    100.0
    """

    name = "ivon"
    label = "IVON"
    cost = "forward and backward pass per sample; three copies of the weights"
    Settings = IVONSettings

    @classmethod
    def untuned(cls, model: nn.Module, n: int, steps: int) -> dict[str, Any]:
        """`presets.short_run`."""
        from varlearn.presets import short_run

        preset = dict(short_run(n, steps))
        beta1, beta2 = preset.pop("betas")
        known = {field.name for field in fields(cls.Settings)}
        return {name: value for name, value in preset.items() if name in known} | {"beta1": beta1, "beta2": beta2}

    def prepare(self, model: nn.Module) -> nn.Module:
        """The network unchanged; one that mixes the examples of a batch has no Gauss-Newton estimate."""
        if self._approx == "gauss_newton":
            from varlearn.optim.per_example import refuse_mixed_examples

            refuse_mixed_examples(model)
        return model

    def optimizer(self, model: nn.Module, facts: Facts) -> IVON:
        """IVON with lambda = n where `ess` is None. It clips ghat alone, so that the Hessian estimate has no bias."""
        from varlearn.optim import IVON

        settings = self.settings
        is_handed_in = self._approx in ("gauss_newton", "hutchinson")
        return IVON(
            parameter_groups(model, settings),
            clip_radius=settings.clip_radius,
            rescale_lr=settings.rescale_lr,
            hess_approx="squared_gradient" if self._approx == "squared_gradient" else "reparam",
            noise="shared" if is_handed_in else "independent",  # estimates are averaged over processes
            **self.arguments(facts),
        )

    def sample_pass(self, training: Training, batch: Batch, draw: int, more: bool) -> Tensor:
        """Forward and backward, and what the estimate takes beyond them."""
        if self._approx == "gauss_newton":
            return gauss_newton_pass(training, batch, draw, more=more)
        if self._approx == "hutchinson":
            return hutchinson_pass(training, batch, draw, more)
        return super().sample_pass(training, batch, draw, more)

    @property
    def _approx(self) -> str:
        return getattr(self.settings, "hess_approx", "reparam")  # plain `Optim` is enough for the paper's
