"""V e of each example: one backward and one forward-mode product, never a Jacobian."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp, vmap
from torch.utils._pytree import tree_leaves, tree_map

from varlearn.core.elementary_attention import plain_attention
from varlearn.posterior import DiagGaussian
from varlearn.posterior.binding import model_tensors, unwrap
from varlearn.prediction.gather import as_floats
from varlearn.prediction.loader_batches import arguments, outputs_of
from varlearn.sensitivities.embedding_bags import PlainBags
from varlearn.sensitivities.recurrent_layers import PlainRecurrence

Row = tuple[Tensor, Tensor, Tensor]
"""f, e and V e of one example, shape (C,) or (T, V) each; of a chunk, with a dimension of examples before it."""

_CHUNK_BYTES = 2**28
_MOST_EXAMPLES = 64
_ACTIVATIONS = 2  # of the backward pass, and those of the forward-mode product


class ExampleDeviation:
    """Computes f, e and V e of a chunk of examples at the posterior mean; the model itself is not changed.

    Args:
        model: in eval mode where that matters.
        posterior: gives the mean, the fixed tensors and sigma^2.
        error: (f, target) of one example -> e, the gradient of its loss in f.
        diagonal: v * e with v the diagonal of V, in place of V e; as many backward passes as outputs.
        tokens: the outputs of one example are (T, V), of a language model. False: (C,).
    """

    def __init__(
        self,
        model: nn.Module,
        posterior: DiagGaussian,
        error: Callable[[Tensor, Tensor], Tensor],
        diagonal: bool = False,
        tokens: bool = False,
    ):
        tensors = model_tensors(model)
        here: dict[str, Tensor] = {**tensors.params, **tensors.buffers}
        self._model, self._error, self._diagonal, self._tokens = unwrap(model), error, diagonal, tokens
        self.mean = {name: value.to(here[name]) for name, value in posterior.mean.items()}
        self._fixed = {name: value.to(here[name]) for name, value in (posterior.fixed or {}).items()}
        self._variance = {name: value.square().to(here[name]) for name, value in posterior.std.items()}
        self._vectorize = True
        kinds = {nn.RNNBase: PlainRecurrence, nn.EmbeddingBag: PlainBags}
        present = {kind for kind in kinds for module in self._model.modules() if isinstance(module, kind)}
        self._replaced = [kinds[kind] for kind in kinds if kind in present]

    def chunk(self, inputs: Any) -> int:
        """How many examples at a time keep gradients and activations below 256 MiB; 64 at most.

        Args:
            inputs: of some examples; the activations of the first are measured.
        """
        gradients = sum(value.numel() * value.element_size() for value in self.mean.values())
        held: dict[int, int] = {}  # bytes by address

        def count(saved: Tensor) -> Tensor:
            held[saved.untyped_storage().data_ptr()] = saved.numel() * saved.element_size()
            return saved

        slopes = {name: value.detach().requires_grad_() for name, value in self.mean.items()}
        weights = {value.untyped_storage().data_ptr() for value in (*slopes.values(), *self._fixed.values())}
        call = self._call(example_at(inputs, 0))
        counting = torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved)
        with self._plain_layers(), torch.enable_grad(), counting:
            outputs = call(slopes)
        size = 2 * gradients + _ACTIVATIONS * sum(size for place, size in held.items() if place not in weights)
        size += 4 * outputs.numel() * outputs.element_size()  # f, e, V e and probabilities
        return max(1, min(_MOST_EXAMPLES, _CHUNK_BYTES // max(size, 1)))

    @torch.no_grad()
    def __call__(self, inputs: Any, targets: Tensor) -> Row:
        """f, e and V e of the examples in the first dimension of every tensor of `inputs`."""
        with self._plain_layers():
            if self._vectorize:
                try:
                    return self._together(inputs, targets)
                except RuntimeError as fault:  # no vmap or forward-mode rule: packed sequences, checkpoints, branches
                    self._settle_for_one(fault, example_at(inputs, 0))
            rows = [self._one(example_at(inputs, i), targets[i]) for i in range(len(targets))]
        f, e, deviation = zip(*rows, strict=True)
        return torch.stack(f), torch.stack(e), torch.stack(deviation)

    @torch.no_grad()
    def by_token(self, inputs: Any, target: Tensor, chunk: int) -> Row:
        """f, e and V e of one sequence, where each token is left out alone: one pass per token.

        Args:
            inputs: of the sequence, without a dimension of examples.
            target: tokens (T,).
            chunk: tokens at a time.
        """
        with self._plain_layers():
            if self._vectorize:
                try:
                    return self._tokens_together(inputs, target, chunk)
                except RuntimeError as fault:
                    self._settle_for_one(fault, inputs)
            with torch.enable_grad():
                weights, f = self._graph(inputs)
                e = self._error(f.detach(), target)
                deviations = [self._twice(weights, f, _only(e, place))[place] for place in range(len(e))]
            return f.detach(), e, torch.stack(deviations)

    @torch.no_grad()
    def gradients(self, inputs: Any, targets: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """J^T e of each example, the gradient of its loss, and the same times sigma^2; with a dimension of examples.

        Args:
            inputs: of some examples.
            targets: of these.
        """

        def slopes(example: Any, target: Tensor) -> Sequence[Tensor]:
            weights, f = self._graph(example)
            return _gradient(f, weights, self._error(f.detach(), target))

        with self._plain_layers(), torch.enable_grad():
            rows = [slopes(example_at(inputs, i), targets[i]) for i in range(len(targets))]
        columns = zip(*rows, strict=True)
        found = {name: torch.stack(column) for name, column in zip(self.mean, columns, strict=True)}
        return found, {name: slope * self._variance[name] for name, slope in found.items()}

    def _together(self, inputs: Any, targets: Tensor) -> Row:
        leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]

        def row(values: list[Tensor], target: Tensor) -> Row:
            given = iter(values)
            return self._row(tree_map(lambda x: next(given) if isinstance(x, Tensor) else x, inputs), target)

        return vmap(row)(leaves, targets)

    def _row(self, example: Any, target: Tensor) -> Row:
        call = self._call(example)
        f, pull_back, *_ = vjp(call, self.mean)
        e = self._error(f, target)
        if self._diagonal:
            units = torch.eye(len(f), dtype=f.dtype, device=f.device)
            return f, e, e * torch.stack([self._variance_along(pull_back(unit)[0]) for unit in units])  # row by row
        tangent = {name: self._variance[name] * slope for name, slope in pull_back(e)[0].items()}
        return f, e, jvp(call, (self.mean,), (tangent,))[1]

    def _tokens_together(self, inputs: Any, target: Tensor, chunk: int) -> Row:
        call = self._call(inputs)
        f, pull_back, *_ = vjp(call, self.mean)
        e = self._error(f, target)

        def row(place: Tensor) -> Tensor:
            tangent = {name: self._variance[name] * slope for name, slope in pull_back(_only(e, place))[0].items()}
            return jvp(call, (self.mean,), (tangent,))[1].index_select(0, place.reshape(1)).squeeze(0)

        return f, e, vmap(row, chunk_size=chunk)(torch.arange(len(e), device=e.device))

    def _one(self, example: Any, target: Tensor) -> Row:
        """The same as `_row` with plain backward passes, which every layer has that can be trained."""
        with torch.enable_grad():
            weights, f = self._graph(example)
            e = self._error(f.detach(), target)
            if not self._diagonal:
                return f.detach(), e, self._twice(weights, f, e)
            units = torch.eye(len(f), dtype=f.dtype, device=f.device)
            slopes = [dict(zip(self.mean, _gradient(f, weights, unit), strict=True)) for unit in units]
            return f.detach(), e, e * torch.stack([self._variance_along(slope) for slope in slopes])

    def _graph(self, example: Any) -> tuple[list[Tensor], Tensor]:
        """Weights that require gradients, and the outputs at them."""
        weights = {name: value.detach().requires_grad_() for name, value in self.mean.items()}
        return list(weights.values()), self._call(example)(weights)

    def _twice(self, weights: Sequence[Tensor], f: Tensor, e: Tensor) -> Tensor:
        """J t for t = sigma^2 * J^T e, as the gradient of (J^T u) . t in u, which is linear in u."""
        u = e.detach().requires_grad_()
        slopes = _gradient(f, weights, u, create_graph=True)
        terms = [
            (slope * variance * slope.detach()).sum().to(f.dtype)
            for slope, variance in zip(slopes, self._variance.values(), strict=True)
        ]
        along = torch.stack(terms).sum()  # (J^T u) . t at u = e, which is e . V e
        fault: RuntimeError | None = None
        found = torch.zeros_like(e)
        try:
            found = _gradient(along, [u])[0]
        except RuntimeError as error:
            fault = error
        if fault or not torch.allclose((e * found).sum(), along.detach(), rtol=1e-2, equal_nan=True):
            raise ValueError(
                "the model has a layer with neither a forward-mode nor a second derivative, and V e needs one of them; "
                "write this layer with PyTorch's own operations"
            ) from fault  # without an error, the layer has left out its part
        return found

    def _call(self, example: Any) -> Callable[[dict[str, Tensor]], Tensor]:
        """From weights to the outputs of one example: (C,), of a language model (T, V)."""
        args, kwargs = arguments(tree_map(lambda x: x.unsqueeze(0) if isinstance(x, Tensor) else x, example))

        def call(params: dict[str, Tensor]) -> Tensor:
            found = outputs_of(functional_call(self._model, {**self._fixed, **params}, args, kwargs))
            if isinstance(found, tuple) and len(found) == 2:  # the mean of y and its variance
                found = torch.cat([as_floats(found[0]).reshape(1, -1), as_floats(found[1]).reshape(1, -1).log()], 1)
            outputs = as_floats(found)
            if self._tokens:
                if outputs.dim() != 3:
                    raise ValueError(
                        f"outputs of shape {tuple(outputs.shape)} for one sequence must be (1, T, V), the logits of a "
                        "language model; leave per out for a classifier"
                    )
                return outputs.squeeze(0)
            if outputs.dim() > 2:
                raise ValueError(
                    f"outputs of shape {tuple(outputs.shape)} for one example must be (1, C), one row per example; "
                    "for a language model use per='sequence' or per='token', else wrap the model in a module that "
                    "returns such rows"
                )
            return outputs.reshape(-1)

        return call

    def _settle_for_one(self, fault: RuntimeError, example: Any) -> None:
        """From now on one example at a time; raise what this would not cure."""
        if isinstance(fault, torch.cuda.OutOfMemoryError):
            raise fault
        call = self._call(example)
        if "randomness" in str(fault) or not torch.allclose(call(self.mean), call(self.mean), 1e-3, equal_nan=True):
            raise ValueError(
                "the model draws random numbers, and its outputs must be a function of the weights; call "
                "model.eval(), and leave out what is random in it"
            ) from fault
        self._vectorize = False

    @contextlib.contextmanager
    def _plain_layers(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(plain_attention())
            for mode in self._replaced:
                stack.enter_context(mode())
            yield

    def _variance_along(self, slopes: dict[str, Tensor]) -> Tensor:
        """sum_p sigma_p^2 slope_p^2: the variance of one output."""
        parts = [(self._variance[name] * slope.square()).sum() for name, slope in slopes.items()]
        return torch.stack([part.to(parts[0].dtype) for part in parts]).sum()


def _only(e: Tensor, place: Tensor | int) -> Tensor:
    """The error of one token, 0 for the others."""
    return (torch.arange(len(e), device=e.device) == place).to(e.dtype)[:, None] * e


def _gradient(
    outputs: Tensor, inputs: Sequence[Tensor], along: Tensor | None = None, create_graph: bool = False
) -> Sequence[Tensor]:
    """The gradient of `along` . outputs; 0 where nothing depends on an input."""
    return torch.autograd.grad(
        outputs, inputs, along, retain_graph=True, create_graph=create_graph, materialize_grads=True
    )


def example_at(inputs: Any, number: int) -> Any:
    """One example of a batch, without the dimension of examples."""
    return tree_map(lambda x: x[number] if isinstance(x, Tensor) else x, inputs)
