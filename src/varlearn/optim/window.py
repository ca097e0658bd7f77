"""The samples since the last step, and the averages of their gradients and Hessian estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from varlearn.optim import loop
from varlearn.optim.tasks import Noise
from varlearn.optim.weights import Sample


class Window:
    """Averages over the Monte-Carlo samples of one step.

    One sample is the common case and costs nothing: its gradient stays where backward left it, in `p.grad`, and hhat is
    made from it at `step()`, after whatever the user did to it in between (unscaling, clipping). From the second sample
    on, hhat is the running mean of the products, never a product of means, and `p.grad` shows the mean gradient.

    Attributes:
        samples: closed samples, oldest first.
        grads: parameter -> mean gradient. The same object as `p.grad` unless the user has cleared that.
        estimates: parameter -> mean of hhat, once there are two samples; before, only what the caller handed in.
        given: parameters whose hhat the caller computed; it does not follow what happens to the gradient.
        cleared: `zero_grad()` was called since the last sample closed, so `p.grad` says nothing.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.grads: dict[Tensor, Tensor] = {}
        self.estimates: dict[Tensor, Tensor] = {}
        self.given: set[Tensor] = set()
        self.cleared = False
        self._norms: dict[Tensor, Tensor] = {}

    def set_aside(self, params: Iterable[Tensor]) -> dict[Tensor, Tensor | None]:
        """Before a further sample: take the mean gradient out of `p.grad`, so that backward writes the new one alone.

        Returns:
            What was there, for `put_back` if the block fails.
        """
        before = {param: param.grad for param in params}
        if self.samples:
            for param in before:
                param.grad = None
        return before

    def put_back(self, before: Mapping[Tensor, Tensor | None]) -> None:
        """After a block that failed: forget its gradients."""
        for param, grad in before.items():
            if self.samples or grad is None:
                param.grad = grad

    def add(self, sample: Sample, given: Mapping[Tensor, Tensor]) -> None:
        """Close a sample: average what backward left in `p.grad` with the earlier samples' gradients.

        Args:
            sample: the one that was in the weights.
            given: hhat of the parameters for which the caller computed it, from this sample.
        """
        new = {param: dense_grad(param) for param in sample.entries if param.grad is not None}
        if not self.samples:
            self.grads, self.estimates = new, dict(given)
        else:
            self._average(sample, new, given)
        self.samples.append(sample)
        self.given.update(given)
        self.cleared = False

    def _average(self, sample: Sample, new: dict[Tensor, Tensor], given: Mapping[Tensor, Tensor]) -> None:
        count = len(self.samples)
        if count == 1:
            self._fold_first(self.samples[0])
        fresh = _estimates(sample, new, given)
        for param in new.keys() | self.grads.keys():
            # A loss that does not reach a parameter in one of the samples has gradient zero there.
            _mean_in(self.grads, param, new.get(param), count)
            _mean_in(self.estimates, param, fresh.get(param), count)
            param.grad = self.grads[param]
        self._remember_norms()

    def _remember_norms(self) -> None:
        self._norms = {param: _norm(grad) for param, grad in self.grads.items()}

    def _fold_first(self, first: Sample) -> None:
        self.estimates = _estimates(first, self.grads, self.estimates)
        # A view may be a slice of a communication buffer that the next backward overwrites.
        self.grads = {param: grad.clone() if grad._is_view() else grad for param, grad in self.grads.items()}

    def finish(self) -> None:
        """Before the averages are used; here they are complete."""

    def gradient(self, param: Tensor) -> Tensor | None:
        """What `step()` uses: `p.grad` as it is now (clipped, unscaled), or the captured mean where it was cleared."""
        if param.grad is None or self.cleared:
            return self.grads.get(param)
        return dense_grad(param)

    def noise(self, param: Tensor) -> Noise:
        """What perturbed a parameter; of the first sample that did."""
        return next(sample.entries[param].noise for sample in self.samples if param in sample.entries)

    def gradient_ratio(self, param: Tensor, grad: Tensor) -> float:
        """By which factor the user scaled the mean gradient after the last of several samples (unscaling, clipping).

        hhat of one sample is made from `p.grad` and follows it by itself; a mean of products has to be told.
        """
        if param not in self._norms:
            return 1.0
        before = float(self._norms[param])
        return float(_norm(grad)) / before if 0.0 < before < math.inf else 1.0

    def detach_from_grads(self) -> None:
        """Before `p.grad` is zeroed in place: keep the captured gradients."""
        self.grads = {param: grad.clone() if param.grad is grad else grad for param, grad in self.grads.items()}


def _estimates(sample: Sample, grads: Mapping[Tensor, Tensor], given: Mapping[Tensor, Tensor]) -> dict[Tensor, Tensor]:
    """hhat of every parameter that has a gradient, made from it or handed in."""
    estimates = {}
    for param, grad in grads.items():
        entry = sample.entries[param]
        hess = entry.state["hess"]
        if param in given:
            estimates[param] = given[param].to(hess.dtype, copy=True)
        else:
            estimates[param] = loop.estimate(entry.group["hess_approx"], grad.to(hess.dtype), hess, entry.noise)
    return estimates


def _norm(grad: Tensor) -> Tensor:
    return torch.linalg.vector_norm(grad, dtype=torch.float64)


def _mean_in(means: dict[Tensor, Tensor], param: Tensor, value: Tensor | None, count: int) -> None:
    """Fold one more value (None for zero) into a running mean over `count` earlier ones."""
    if param not in means:
        assert value is not None
        means[param] = value.div_(count + 1)
        return
    mean = means[param].mul_(count / (count + 1))
    if value is not None:
        mean.add_(value, alpha=1.0 / (count + 1))


def dense_grad(param: Tensor) -> Tensor:
    """`p.grad`, made dense where an embedding left it sparse."""
    grad = param.grad
    assert grad is not None
    if grad.layout != torch.strided:
        param.grad = grad = grad.to_dense()
    return grad
