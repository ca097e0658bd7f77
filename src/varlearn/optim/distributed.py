"""Several processes, each with its own sample: the averages over J devices of Section 3.

A rank multiplies its own gradient by its own noise before anything is averaged. Hooks on the parameters see the
gradient before `DistributedDataParallel` does, so neither `no_sync` nor a handle to the wrapped model is needed; at
`step()` one buffer of products is reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from varlearn.optim import loop
from varlearn.optim.weights import Entry, Sample
from varlearn.optim.window import Window, dense_grad


def world_size() -> int:
    """The number of processes that train together; 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def replica(noise: str) -> int:
    """Which noise this process draws: its rank's own, or one that all have in common."""
    return dist.get_rank() if noise == "independent" and world_size() > 1 else 0


class LocalProducts:
    """hhat of one sample on one rank, collected while backward runs.

    Attributes:
        flat: all products in one buffer, parameter after parameter, so that one reduction serves them all.
        views: parameter -> its part of `flat`, in its shape. Only where hhat is a product with the noise.
        seen: parameters whose gradient came by.
        fresh: those among them that had no gradient yet, of this sample or an earlier one.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)
        products = [entry.param for entry in self._entries if entry.group["hess_approx"] == "reparam"]
        sizes = [param.numel() for param in products]
        like = self._entries[0].state["hess"] if self._entries else torch.zeros(0)
        self.flat = torch.zeros(sum(sizes), dtype=like.dtype, device=like.device)
        parts = self.flat.split(sizes)
        self.views = {param: part.view(param.shape) for param, part in zip(products, parts, strict=True)}
        self.seen: set[Tensor] = set()
        self.fresh: set[Tensor] = set()
        self._hooks: list[RemovableHandle] = []

    def open(self) -> None:
        """Begin to collect."""
        self._hooks = [entry.param.register_hook(self._collector(entry)) for entry in self._entries]

    def close(self) -> None:
        """Stop collecting; what was collected stays."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _collector(self, entry: Entry) -> Callable[[Tensor], None]:
        param = entry.param

        def collect(grad: Tensor) -> None:
            if param not in self.seen and param.grad is None:
                self.fresh.add(param)
            self.seen.add(param)
            if param in self.views:
                with torch.no_grad():
                    hess = entry.state["hess"]
                    grad = grad.to_dense() if grad.layout != torch.strided else grad
                    self.views[param].add_(loop.estimate("reparam", grad.to(hess.dtype), hess, entry.noise))

        return collect


class DistributedWindow(Window):
    """The averages over samples and ranks.

    Gradients add up in `p.grad` over the samples, as in ordinary accumulation, so that `no_sync` works as usual: the
    backward that synchronizes then reduces all of them. `p.grad` shows their mean between the blocks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._products: LocalProducts | None = None
        self._captured_total = torch.zeros((), dtype=torch.float64)

    def set_aside(self, params: Iterable[Tensor]) -> dict[Tensor, Tensor | None]:
        """Turn the mean gradient back into a sum, to which backward adds."""
        before: dict[Tensor, Tensor | None] = {param: None for param in params}
        for param, grad in self.grads.items():
            # A view may be a slice of DDP's bucket, which the next backward overwrites.
            own = grad.clone() if grad._is_view() else grad
            self.grads[param] = param.grad = own.mul_(len(self.samples))
        return before

    def put_back(self, before: Mapping[Tensor, Tensor | None]) -> None:
        """After a block that failed: its gradients are in the sum, so the window starts afresh."""
        for param in before:
            param.grad = None
        self.grads, self.estimates, self.samples, self._products = {}, {}, [], None

    def add(self, sample: Sample, given: Mapping[Tensor, Tensor]) -> None:
        """Close a sample; see `Window.add`."""
        if given:
            raise RuntimeError("hand_in_hess() is for one process; with several, use hess_approx='reparam'")
        assert isinstance(sample.products, LocalProducts)
        self._add_gradients(sample, sample.products)
        self.samples.append(sample)
        if self._products is None:
            self._products = sample.products
        else:
            self._products.flat.add_(sample.products.flat)
            self._products.seen |= sample.products.seen
        if len(self.samples) > 1:
            for param, grad in self.grads.items():
                param.grad = grad.div_(len(self.samples))
        self.cleared = False
        self._capture()
        self._captured_total = self._total()

    def _add_gradients(self, sample: Sample, products: LocalProducts) -> None:
        for param in sample.entries:
            if param.grad is None or (param not in products.seen and param in self.grads):
                continue
            if param not in products.seen:
                raise RuntimeError(
                    f"a gradient of a parameter of shape {tuple(param.shape)} did not come from backward on this rank, "
                    "so its product with this rank's noise is unknown; pass noise='shared'"
                )
            grad = dense_grad(param)
            if param in self.grads and param in products.fresh:
                self.grads[param].add_(grad)  # p.grad was cleared in between, so it lacks the earlier samples
            else:
                self.grads[param] = grad

    def finish(self) -> None:
        """Average the products over samples and ranks."""
        assert self._products is not None
        self._refuse_unequal_gradients()
        flat = self._products.flat
        dist.all_reduce(flat)
        flat.div_(world_size() * len(self.samples))
        self.estimates = {param: view for param, view in self._products.views.items() if param in self.grads}

    def _total(self) -> Tensor:
        """A fingerprint of the gradients as they are now."""
        total = torch.zeros((), dtype=torch.float64)
        for param in self.grads:
            grad = self.gradient(param)
            if grad is not None:
                total += grad.sum(dtype=torch.float64).to(total.device)
        return total

    def _refuse_unequal_gradients(self) -> None:
        """Ranks must agree on the averaged gradient, or their means drift apart.

        Where they did not agree when the last block closed, the user has averaged since, and what happened to `p.grad`
        is no factor for hhat to follow.
        """
        mine = torch.stack([self._total(), self._captured_total])
        ranks = [torch.zeros_like(mine) for _ in range(world_size())]
        dist.all_gather(ranks, mine)
        values, captured = ([float(rank[i]) for rank in ranks] for i in range(2))
        if any(value != captured[0] for value in captured):
            self._captured = {}
        if any(value != values[0] for value in values if value == value):
            raise RuntimeError(
                f"the gradients differ between ranks (sums {values}); wrap the model in DistributedDataParallel, "
                "let the last backward before step() synchronize, or average p.grad yourself"
            )
