"""IVON (Shen et al., 2024), the method of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varlearn.methods.method import Facts
from varlearn.methods.parameter_groups import parameter_groups
from varlearn.methods.shared_settings import Optim
from varlearn.methods.variational_method import VariationalMethod

if TYPE_CHECKING:
    from torch import nn

    from varlearn.optim import IVON


class IVONMethod(VariationalMethod[Optim]):
    """Gradients at samples of the weights, a Gaussian as the result.

    >>> from torch import nn
    >>> facts = Facts(n=100, batch_size=10, steps=50, task="classification")
    >>> IVONMethod(Optim("ivon")).optimizer(nn.Linear(1, 1), facts).param_groups[0]["ess"]
    100.0
    """

    name = "ivon"
    label = "IVON"
    cost = "forward and backward pass per sample; three copies of the weights"

    def optimizer(self, model: nn.Module, facts: Facts) -> IVON:
        """IVON with lambda = n where `ess` is None. It clips ghat alone, so that the Hessian estimate has no bias."""
        from varlearn.optim import IVON

        settings = self.settings
        return IVON(
            parameter_groups(model, settings),
            lr=settings.lr,
            ess=float(facts.n) if settings.ess is None else settings.ess,
            hess_init=settings.hess_init,
            betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay,
            mc_samples=settings.samples,
            clip_radius=settings.clip_radius,
            rescale_lr=settings.rescale_lr,
            seed=facts.seed,
            max_grad_norm=facts.max_grad_norm,
        )
