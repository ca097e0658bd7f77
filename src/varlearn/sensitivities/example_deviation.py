"""V e of each example: one backward and one forward-mode product, never a Jacobian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp, vmap
from torch.utils._pytree import tree_leaves, tree_map

from varlearn.posterior import DiagGaussian
from varlearn.posterior.binding import model_tensors, unwrap
from varlearn.prediction.gather import as_floats
from varlearn.prediction.loader_batches import arguments, outputs_of
from varlearn.prediction.samplers import plain_attention

Row = tuple[Tensor, Tensor, Tensor]
"""f, e and V e of one example, shape (C,) each; of a chunk, (B, C)."""

_GRADIENT_BYTES = 2**28
_MOST_EXAMPLES = 64


class ExampleDeviation:
    """Computes f, e and V e of a chunk of examples at the posterior mean; the model itself is not changed.

    Args:
        model: in eval mode where that matters.
        posterior: gives the mean, the fixed tensors and sigma^2.
        error: (f, target) of one example -> e, the gradient of its loss in f.
        diagonal: v * e with v the diagonal of V, in place of V e; as many backward passes as outputs.
    """

    def __init__(
        self, model: nn.Module, posterior: DiagGaussian, error: Callable[[Tensor, Tensor], Tensor], diagonal: bool
    ):
        tensors = model_tensors(model)
        here: dict[str, Tensor] = {**tensors.params, **tensors.buffers}
        self._model, self._error, self._diagonal = unwrap(model), error, diagonal
        self._mean = {name: value.to(here[name]) for name, value in posterior.mean.items()}
        self._fixed = {name: value.to(here[name]) for name, value in (posterior.fixed or {}).items()}
        self._variance = {name: value.square().to(here[name]) for name, value in posterior.std.items()}
        self._vectorize = True

    @property
    def chunk(self) -> int:
        """How many examples at a time keep their gradients below 256 MiB; 64 at most, for the activations."""
        size = sum(value.numel() * value.element_size() for value in self._mean.values())
        return max(1, min(_MOST_EXAMPLES, _GRADIENT_BYTES // max(size, 1)))

    @torch.no_grad()
    def __call__(self, inputs: Any, targets: Tensor) -> Row:
        """f, e and V e of the examples in the first dimension of every tensor of `inputs`."""
        with plain_attention():
            if self._vectorize:
                try:
                    return self._together(inputs, targets)
                except torch.cuda.OutOfMemoryError:
                    raise
                except RuntimeError as fault:  # nn.GRU and nn.LSTM have no vmap rule, nor has a branch on values
                    if "randomness" in str(fault):
                        raise ValueError(
                            "the model draws random numbers, and its outputs must be a function of the weights; call "
                            "model.eval(), and leave out what is random in it"
                        ) from fault
                    self._vectorize = False
            rows = [self._row(_example(inputs, i), targets[i]) for i in range(len(targets))]
        f, e, deviation = zip(*rows, strict=True)
        return torch.stack(f), torch.stack(e), torch.stack(deviation)

    def _together(self, inputs: Any, targets: Tensor) -> Row:
        leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]

        def row(values: list[Tensor], target: Tensor) -> Row:
            given = iter(values)
            return self._row(tree_map(lambda x: next(given) if isinstance(x, Tensor) else x, inputs), target)

        return vmap(row)(leaves, targets)

    def _row(self, example: Any, target: Tensor) -> Row:
        args, kwargs = arguments(tree_map(lambda x: x.unsqueeze(0) if isinstance(x, Tensor) else x, example))

        def call(params: dict[str, Tensor]) -> Tensor:
            outputs = as_floats(outputs_of(functional_call(self._model, {**self._fixed, **params}, args, kwargs)))
            if outputs.dim() > 2:
                raise ValueError(
                    f"outputs of shape {tuple(outputs.shape)} for one example must be (1, C), one row per example; "
                    "wrap the model in a module that returns such rows"
                )
            return outputs.reshape(-1)

        f, pull_back, *_ = vjp(call, self._mean)
        e = self._error(f, target)
        if self._diagonal:
            units = torch.eye(len(f), dtype=f.dtype, device=f.device)
            return f, e, e * torch.stack([self._variance_along(pull_back(unit)[0]) for unit in units])  # row by row
        tangent = {name: self._variance[name] * slope for name, slope in pull_back(e)[0].items()}
        return f, e, jvp(call, (self._mean,), (tangent,))[1]

    def _variance_along(self, slopes: dict[str, Tensor]) -> Tensor:
        """sum_p sigma_p^2 slope_p^2: the variance of one output."""
        parts = [(self._variance[name] * slope.square()).sum() for name, slope in slopes.items()]
        return torch.stack([part.to(parts[0].dtype) for part in parts]).sum()


def _example(inputs: Any, number: int) -> Any:
    return tree_map(lambda x: x[number] if isinstance(x, Tensor) else x, inputs)
