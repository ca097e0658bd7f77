"""The samples since the last step, and the averages of their gradients and Hessian estimates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from varlearn.core.dtypes import state_dtype
from varlearn.core.shards import is_sharded, local, placed_like
from varlearn.optim.engine.plan import Fold, Member, Noise
from varlearn.optim.engine.tensor_operations import fold_in_mean
from varlearn.optim.sampling.members import Members
from varlearn.optim.sampling.sample import Sample


class SampleAverage:
    """Averages over the Monte-Carlo samples of one step.

    One sample is the common case and costs nothing: its gradient stays where backward left it, in `p.grad`, and hhat is
    made from it at `step()`, after whatever the user did to it in between (unscaling, clipping). From the second sample
    on, hhat is the running mean of the products, never a product of means, and `p.grad` shows the mean gradient.

    Args:
        members: computes the running means.

    Attributes:
        samples: closed samples, oldest first.
        grads: parameter -> mean gradient. The same object as `p.grad` unless the user has cleared that.
        estimates: parameter -> mean of hhat, once there are two samples; before, only what the caller handed in. Of a
            sharded parameter this rank's part.
        given: parameters whose hhat the caller computed; it does not follow what happens to the gradient.
        cleared: `zero_grad()` was called since the last sample closed, so `p.grad` says nothing.
        bytes: what this rank handed to collectives for the averages.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self.samples: list[Sample] = []
        self.grads: dict[Tensor, Tensor] = {}
        self.estimates: dict[Tensor, Tensor] = {}
        self.given: set[Tensor] = set()
        self.cleared = False
        self.bytes = 0
        self._captured: dict[Tensor, Tensor] = {}  # the mean gradient as it was made, to see what the user does to it

    def set_aside(self, params: Iterable[Tensor]) -> dict[Tensor, Tensor | None]:
        """Before a further sample: take the mean gradient out of `p.grad`, so that backward writes the new one alone.

        Returns:
            What was there, for `put_back` if the block fails.
        """
        if not self.samples:
            return {param: None for param in params if param.grad is None}
        before = {param: param.grad for param in params}
        for param in before:
            param.grad = None
        return before

    def put_back(self, before: Mapping[Tensor, Tensor | None]) -> None:
        """After a block that failed: forget its gradients."""
        for param, grad in before.items():
            param.grad = grad

    def add(self, sample: Sample, given: Mapping[Tensor, Tensor]) -> None:
        """Close a sample: average what backward left in `p.grad` with the earlier samples' gradients.

        Args:
            sample: the one that was in the weights.
            given: hhat of the parameters for which the caller computed it, from this sample.
        """
        new: dict[Tensor, Tensor] = {}
        for param, _, _, _ in sample.members:
            grad = param.grad
            if grad is not None:
                new[param] = grad if type(grad) is Tensor and grad.layout is torch.strided else dense_grad(param)
        if sample.is_sharded and not new:
            raise RuntimeError(
                "a training block ended without a gradient of the sharded parameters: backward did not run, or "
                "set_requires_gradient_sync(False) held it back; run all micro-batches of a sample in one block, and "
                "let the last of them synchronize"
            )
        given = {param: local(placed_like(param, estimate)) for param, estimate in given.items()}
        if not self.samples:
            self.grads, self.estimates = new, given
        else:
            self._average(sample, new, given)
        self.samples.append(sample)
        self.given.update(given)
        self.cleared = False

    def _average(self, sample: Sample, new: dict[Tensor, Tensor], given: Mapping[Tensor, Tensor]) -> None:
        count = len(self.samples)
        if not self._members.rule.has_products:
            self._average_gradients(new, count)
            return
        if count == 1:
            self._fold_first(self.samples[0])
        for param, grad in new.items():
            if param not in self.grads:
                self.grads[param] = torch.zeros_like(grad)
                self.estimates[param] = _zeros(param)
        for param, mean in self.grads.items():
            param.grad = mean
            if param not in self._captured:
                self._captured[param] = torch.empty_like(local(mean))
            if param not in new or param in given:
                # A loss that does not reach a parameter in one of the samples has gradient zero there.
                fold_in_mean(mean, new.get(param), count)
                fold_in_mean(self.estimates[param], given.get(param), count)
                self._captured[param].copy_(local(mean))
        own = [param for param in new if param not in given]
        self._members.fold([self._fold(sample, param, new[param], count) for param in own])

    def _average_gradients(self, new: Mapping[Tensor, Tensor], count: int) -> None:
        """The mean of gradients alone, for rules whose curvature is made from it."""
        # A view may be a slice of a communication buffer that the next backward overwrites.
        self.grads = {param: grad.clone() if grad._is_view() else grad for param, grad in self.grads.items()}
        self.grads |= {param: torch.zeros_like(grad) for param, grad in new.items() if param not in self.grads}
        for param, mean in self.grads.items():
            fold_in_mean(mean, new.get(param), count)
            param.grad = mean

    def _fold(self, sample: Sample, param: Tensor, grad: Tensor, count: int) -> tuple[Member, Fold]:
        """Take one more gradient into the means of a parameter; of the first gradient, only hhat is missing."""
        member = sample.member(param)
        mean, captured = (local(self.grads[param]), self._captured[param]) if count else (None, None)
        how = member.group["hess_approx"], sample.noises[id(member.group)], count
        return member, Fold(local(grad), mean, self.estimates[param], *how, captured)

    def _fold_first(self, first: Sample) -> None:
        own = [param for param in self.grads if param not in self.given]
        for param in self.given:
            self.estimates[param] = self.estimates[param].to(state_dtype(param), copy=True)
        for param in own:
            self.estimates[param] = _zeros(param)
        self._members.fold([self._fold(first, param, self.grads[param], 0) for param in own])
        # A view may be a slice of a communication buffer that the next backward overwrites.
        self.grads = {param: grad.clone() if grad._is_view() else grad for param, grad in self.grads.items()}

    def finish(self) -> None:
        """Before the averages are used; here they are complete."""

    def gradients(self, params: Sequence[Tensor]) -> list[Tensor | None]:
        """What `step()` uses for each parameter, of a sharded one this rank's part.

        That is `p.grad` as it is now (clipped, unscaled), or the captured mean where it was cleared.
        """
        found: list[Tensor | None] = []
        for param in params:
            grad = None if self.cleared else param.grad
            if type(grad) is not Tensor or grad.layout is not torch.strided:
                grad = self._other_gradient(param, grad)
            found.append(grad)
        return found

    def _other_gradient(self, param: Tensor, grad: Tensor | None) -> Tensor | None:
        """The gradient where `p.grad` is missing, sparse or sharded."""
        grad = self.grads.get(param) if grad is None else dense_grad(param)
        return grad if grad is None else local(grad)

    def noise(self, group: Mapping[str, Any]) -> Noise:
        """The noise of a parameter group in the first sample that has it."""
        return next(sample.noises[id(group)] for sample in self.samples if id(group) in sample.noises)

    def change(self, param: Tensor, grad: Tensor) -> Tensor | None:
        """By which factors the user scaled the mean gradient since it was captured (unscaling, clipping); None for 1.

        hhat of one sample is made from `p.grad` at `step()`, so it is scaled with it; a mean of products is not.
        """
        captured = self._captured.pop(param, None)
        if captured is None or torch.equal(captured, grad):
            return None
        dtype = torch.promote_types(grad.dtype, torch.float32)
        return torch.where(captured == 0.0, 1.0, grad.to(dtype) / captured.to(dtype))

    def detach_from_grads(self) -> None:
        """Before `p.grad` is zeroed in place: keep the captured gradients."""
        self.grads = {param: grad.clone() if param.grad is grad else grad for param, grad in self.grads.items()}


def _zeros(param: Tensor) -> Tensor:
    return torch.zeros_like(local(param), dtype=state_dtype(param), requires_grad=False)


def dense_grad(param: Tensor) -> Tensor:
    """`p.grad`, made dense where an embedding left it sparse, and spread over the ranks as the parameter is."""
    grad = param.grad
    assert grad is not None
    if is_sharded(grad):
        placed = placed_like(param, grad)
        if placed is not grad:
            param.grad = placed
        return placed
    if grad.layout != torch.strided:
        param.grad = grad = grad.to_dense()
    return grad
