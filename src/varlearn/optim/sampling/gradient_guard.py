"""Refuse gradients that backward took while no training sample was in the weights."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from varlearn.core.shards import local
from varlearn.optim.sampling.sample_average import SampleAverage
from varlearn.optim.sampling.sampled_weights import SampledWeights


class GradientGuard:
    """Remembers which `p.grad` received a contribution at the mean, so that `step()` can refuse it.

    Only the gradient object is remembered: once `p.grad` is cleared, the contribution is gone with it.
    """

    def __init__(self, weights: SampledWeights) -> None:
        self._weights = weights
        self._grads: dict[Tensor, Tensor] = {}
        self._hooks: dict[int, tuple[Tensor, RemovableHandle]] = {}  # by id: hashing a tensor is ten times slower
        self._on_grad = _reporting_to(weakref.ref(self))

    def watch(self, params: Iterable[Tensor]) -> None:
        """Look at the gradients of these parameters from now on. The hooks do not keep this object alive."""
        for param in params:
            if id(param) not in self._hooks and param.requires_grad and not is_lazy(param):
                self._hooks[id(param)] = param, param.register_post_accumulate_grad_hook(self._on_grad)

    def note(self, param: Tensor) -> None:
        """Backward has added to the parameter's gradient, which is not one of a training sample."""
        assert param.grad is not None
        self._grads[param] = param.grad

    def drop_zeroed(self) -> None:
        """Forget gradients that were set to zero in place."""
        if self._grads:
            kept = {param: grad for param, grad in self._grads.items() if param.grad is grad}
            self._grads = {param: grad for param, grad in kept.items() if bool(local(grad).any())}

    def forget(self, params: Iterable[Tensor]) -> None:
        """The gradients of these parameters are right, though no sample was in the weights."""
        for param in params:
            self._grads.pop(param, None)

    def has_noted(self, param: Tensor) -> bool:
        """Whether the parameter's gradient has a part that was not taken at a training sample."""
        return param.grad is not None and self._grads.get(param) is param.grad

    def refuse(self, params: Iterable[Tensor], average: SampleAverage) -> None:
        """Raise if one of these parameters has a gradient, or a part of one, that is not of a sample of `average`."""
        for param in params:
            grad = param.grad
            if grad is None:
                continue
            is_unknown = not average.cleared and param not in average.grads
            if is_unknown or (self._grads and self._grads.get(param) is grad):
                raise RuntimeError(
                    f"a gradient of a parameter of shape {tuple(param.shape)} was taken outside the sampling block, "
                    "not at the sample; run backward inside `with optimizer.sampled_params(train=True):`, and call "
                    "zero_grad() to drop what was computed outside"
                )

    def clear(self) -> None:
        """Forget: the gradients were used or zeroed."""
        self._grads.clear()


def _reporting_to(watcher: weakref.ref[GradientGuard]) -> Callable[[Tensor], None]:
    """One hook for all parameters: there are many, and they may outlive the optimizer."""

    def on_grad(param: Tensor) -> None:
        alive = watcher()
        if alive is not None and not ((opened := alive._weights.open) and opened[-1].train):
            alive.note(param)

    return on_grad
