"""Gradients that backward took while no training sample was in the weights."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from varlearn.core.shards import local
from varlearn.optim.weights import SampledWeights


class OutsideGradients:
    """Remembers which `p.grad` received a contribution at the mean, so that `step()` can refuse it.

    Only the gradient object is remembered: once `p.grad` is cleared, by whomever, the contribution is gone with it.
    """

    def __init__(self, weights: SampledWeights) -> None:
        self._weights = weights
        self._grads: dict[Tensor, Tensor] = {}
        self._hooks: dict[int, tuple[Tensor, RemovableHandle]] = {}  # by id: hashing a tensor is ten times slower
        self._on_grad = _reporting_to(weakref.ref(self))

    def watch(self, param: Tensor) -> None:
        """Look at the gradients of a parameter from now on. The hook does not keep this object alive."""
        if id(param) in self._hooks or not param.requires_grad or is_lazy(param):
            return
        self._hooks[id(param)] = param, param.register_post_accumulate_grad_hook(self._on_grad)

    def note(self, param: Tensor) -> None:
        """Backward has added to the parameter's gradient."""
        if not self._weights.show_training_sample:
            assert param.grad is not None
            self._grads[param] = param.grad

    def drop_zeroed(self) -> None:
        """Forget gradients that were set to zero in place."""
        kept = {param: grad for param, grad in self._grads.items() if self.has(param)}
        self._grads = {param: grad for param, grad in kept.items() if bool(local(grad).any())}

    def has(self, param: Tensor) -> bool:
        """Whether the parameter's present gradient has a contribution from outside."""
        return bool(self._grads) and param.grad is not None and self._grads.get(param) is param.grad

    def refuse(self, params: Iterable[Tensor]) -> None:
        """Raise if one of these parameters, whose gradient is not of a sample, has a gradient."""
        for param in params:
            if param.grad is not None:
                raise RuntimeError(
                    f"a gradient of a parameter of shape {tuple(param.shape)} was taken outside the sampling block, "
                    "not at the sample; run backward inside `with optimizer.sampled_params(train=True):`, and call "
                    "zero_grad() to drop what was computed outside"
                )

    def clear(self) -> None:
        """Forget: the gradients were used or zeroed."""
        self._grads.clear()


def _reporting_to(watcher: weakref.ref[OutsideGradients]) -> Callable[[Tensor], None]:
    """One hook for all parameters: they are many, and may outlive who watches them."""

    def on_grad(param: Tensor) -> None:
        if (alive := watcher()) is not None:
            alive.note(param)

    return on_grad
