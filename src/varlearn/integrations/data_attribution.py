"""The memory-perturbation equation as an attributor for dattri's metrics and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from varlearn.posterior import DiagGaussian
from varlearn.prediction.loader_batches import device_of, move
from varlearn.sensitivities.batch_parts import parts
from varlearn.sensitivities.example_deviation import ExampleDeviation
from varlearn.sensitivities.input_checks import check_one_example_at_a_time, check_posterior
from varlearn.sensitivities.loss_errors import error_of_example

if TYPE_CHECKING:
    from dattri.algorithm.base import BaseAttributor


def mpe_attributor(model: nn.Module, posterior: DiagGaussian, noise_variance: float = 1.0) -> BaseAttributor:
    """An attributor with dattri's interface: `cache(train)`, `attribute(train, test)` and `self_attribute(train)`.

    Without training example i, the mean of the weights moves by sigma^2 * g_i with g_i the gradient of its loss, so the
    loss of a test example with gradient g rises by

        g . (sigma^2 * g_i),

    to first order. A large value means that the example helps the test example, as in dattri's influence functions.

    Args:
        model: in eval mode.
        posterior: with ess = n at temperature 1.
        noise_variance: see `varlearn.sensitivity`.

    >>> net = nn.Linear(1, 1, bias=False)
    >>> q = DiagGaussian({"weight": torch.tensor([[1.5]])}, {"weight": torch.tensor([[1.0]])}, ess=10.0)
    >>> data = [(torch.tensor([[2.0]]), torch.tensor([[1.0]]))]  # a gradient of 2 (3 - 1)
    >>> attributor = mpe_attributor(net, q)
    >>> attributor.attribute(data, data)  # 4 * 0.1 * 4
    tensor([[1.6000]])
    """
    from dattri.algorithm.base import BaseAttributor

    check_posterior(model, posterior)
    check_one_example_at_a_time(model)
    compute = ExampleDeviation(model, posterior, partial(error_of_example, noise_variance=noise_variance))
    device = device_of(model)

    def gradients(loader: Iterable[Any], scaled: bool) -> Tensor:
        """One row per example, (N, P), on the CPU."""
        rows = []
        for part in parts(loader, lambda inputs: 64):
            found = compute.gradients(move(part.inputs, device), part.targets.to(device))[scaled]
            rows.append(torch.cat([value.flatten(1) for value in found.values()], 1).cpu())
        return torch.cat(rows)

    class MPEAttributor(BaseAttributor):
        def __init__(self) -> None:
            self._cached: Tensor | None = None

        def cache(self, full_train_dataloader: Any) -> None:
            self._cached = gradients(full_train_dataloader, scaled=True)

        def attribute(self, train_dataloader: Any, test_dataloader: Any) -> Tensor:
            train = gradients(train_dataloader, scaled=True) if self._cached is None else self._cached
            return train @ gradients(test_dataloader, scaled=False).T

        def self_attribute(self, train_dataloader: Any) -> Tensor:
            plain = gradients(train_dataloader, scaled=False)
            return (plain * gradients(train_dataloader, scaled=True)).sum(1)

    return MPEAttributor()
