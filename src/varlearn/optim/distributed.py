"""Several processes, each with its own sample: the averages over J devices of Section 3.

A rank multiplies its own gradient by its own noise before anything is averaged. Hooks on the parameters see the
gradient before `DistributedDataParallel` does, so neither `no_sync` nor a handle to the wrapped model is needed; at
`step()` one buffer of products is reduced, after the ranks have told each other where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from varlearn.optim import paths
from varlearn.optim.tasks import Fold
from varlearn.optim.weights import Entry, Sample
from varlearn.optim.window import Window, dense_grad

_FINGERPRINT = 1024  # entries of a gradient, spread over it, that tell whether two ranks have the same


def world_size() -> int:
    """The number of processes that train together; 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process among them; 0 without a process group."""
    return dist.get_rank() if world_size() > 1 else 0


class Report(NamedTuple):
    """What a rank tells the others at `step()`.

    Attributes:
        draws: number of its next sample, or -1 where its inputs are used up (`torch.distributed.algorithms.Join`).
        samples: how many it has for this step.
        local: sum of some of the gradients that backward left on this rank, before any averaging.
        captured: sum of the gradients when the last block closed.
        now: sum of the gradients as `step()` finds them.
    """

    draws: float = -1.0
    samples: float = 0.0
    local: float = 0.0
    captured: float = 0.0
    now: float = 0.0


def exchange(report: Report, device: torch.device) -> list[Report]:
    """The reports of all ranks that have inputs. The time-out of the process group ends a wait for one that is away."""
    mine = torch.tensor(report, dtype=torch.float64, device=device)
    ranks = [torch.zeros_like(mine) for _ in range(world_size())]
    try:
        dist.all_gather(ranks, mine)
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {rank()} waited in step() for the other ranks, in vain ({error}); every rank must take the same "
            "steps. Where some have fewer batches, train in `with Join([model, optimizer]):` of "
            "torch.distributed.algorithms"
        ) from error
    return [found for found in (Report(*values.tolist()) for values in ranks) if found.draws >= 0.0]


def fingerprint(grads: Iterable[Tensor]) -> Tensor:
    """A number that ranks have in common if, and as good as only if, they have the gradients in common.

    >>> fingerprint([torch.tensor([1.0, 2.0]), torch.tensor([3.0])])
    tensor(6., dtype=torch.float64)
    """
    parts = [grad.flatten()[:: max(1, grad.numel() // _FINGERPRINT)].sum(dtype=torch.float64) for grad in grads]
    return torch.stack(parts).sum() if parts else torch.zeros((), dtype=torch.float64)


class LocalProducts:
    """hhat of one sample on one rank, collected while backward runs.

    Attributes:
        flat: all products in one buffer, parameter after parameter, so that one reduction serves them all; then, for
            each parameter, 1 if its gradient came by on this rank.
        views: parameter -> its part of `flat`, in its shape. Only where hhat is a product with the noise.
        seen: parameters whose gradient came by.
        fresh: those among them that had no gradient yet, of this sample or an earlier one.
        fingerprint: of the gradients that came by.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)
        products = [entry.param for entry in self._entries if entry.group["hess_approx"] == "reparam"]
        sizes = [param.numel() for param in products]
        like = self._entries[0].state["hess"] if self._entries else torch.zeros(0)
        count = len(self._entries)
        self.flat = torch.zeros(sum(sizes) + count, dtype=like.dtype, device=like.device)
        self._sums, self._marks = self.flat.split([sum(sizes), count])
        parts = self._sums.split(sizes)
        self._number = {entry.param: number for number, entry in enumerate(self._entries)}
        self.views = {param: part.view(param.shape) for param, part in zip(products, parts, strict=True)}
        self.seen: set[Tensor] = set()
        self.fresh: set[Tensor] = set()
        self.fingerprint = torch.zeros((), dtype=torch.float64, device=like.device)
        self._backwards: dict[Tensor, int] = {}  # parameter -> how many its part of `flat` is the mean of
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

        @torch.no_grad()
        def collect(grad: Tensor) -> None:
            if param not in self.seen:
                if param.grad is None:
                    self.fresh.add(param)
                self.seen.add(param)
                self._marks[self._number[param]] = 1.0
            grad = grad.to_dense() if grad.layout != torch.strided else grad
            self.fingerprint += fingerprint([grad])
            if param in self.views:
                count = self._backwards.get(param, 0)
                fold = Fold(grad, None, self.views[param], entry.state["hess"], "reparam", entry.noise, count)
                paths.fold([(entry.group, fold)])
                self._backwards[param] = count + 1

        return collect

    def sum_up(self) -> None:
        """After the last backward: sums of products, where there were several backwards."""
        for param, count in self._backwards.items():
            if count > 1:
                self.views[param].mul_(count)
        self._backwards = {}

    def add(self, other: LocalProducts) -> None:
        """Take over what a further sample collected."""
        self.flat.add_(other.flat)
        self.seen |= other.seen
        self.fingerprint += other.fingerprint

    def reduce(self, count: float) -> int:
        """Average over `count` samples of all ranks; returns the bytes that this rank put in."""
        dist.all_reduce(self.flat)
        self._sums.div_(count)
        return self.flat.numel() * self.flat.element_size()

    def seen_anywhere(self, param: Tensor) -> bool:
        """After `reduce`: whether the gradient of a parameter came by on one of the ranks."""
        return bool(self._marks[self._number[param]] > 0.0)


class DistributedWindow(Window):
    """The averages over samples and ranks.

    Gradients add up in `p.grad` over the samples, as in ordinary accumulation, so that `no_sync` works as usual: the
    backward that synchronizes then reduces all of them. `p.grad` shows their mean between the blocks.

    Args:
        draws: number of the first sample, equal on all ranks if they go in step.
        divide_by_all: whether ranks without inputs count in the averages, as DDP's `divide_by_initial_world_size`.
    """

    def __init__(self, draws: int = 0, divide_by_all: bool = True) -> None:
        super().__init__()
        self._draws, self._divide_by_all = draws, divide_by_all
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
        sample.products.sum_up()
        self._add_gradients(sample, sample.products)
        self.samples.append(sample)
        if self._products is None:
            self._products = sample.products
        else:
            self._products.add(sample.products)
        if len(self.samples) > 1:
            for param, grad in self.grads.items():
                param.grad = grad.div_(len(self.samples))
        self.cleared = False
        self._capture()
        self._captured_total = self._total()

    def _capture(self) -> None:
        for param, grad in self.grads.items():
            if param in self._captured:
                self._captured[param].copy_(grad)
            else:
                self._captured[param] = grad.clone()

    def _add_gradients(self, sample: Sample, products: LocalProducts) -> None:
        for param in sample.entries:
            if param.grad is None or (param not in products.seen and param in self.grads):
                continue
            grad = dense_grad(param)
            if param in self.grads and param in products.fresh:
                self.grads[param].add_(grad)  # p.grad was cleared in between, so it lacks the earlier samples
            else:
                self.grads[param] = grad

    def finish(self) -> None:
        """Average the products over samples and ranks."""
        products = self._products
        assert products is not None
        sums = (float(value) for value in (products.fingerprint, self._captured_total, self._total()))
        mine = Report(self._draws, len(self.samples), *sums)
        reports = exchange(mine, products.flat.device)
        self._refuse(reports)
        if any(report.captured != mine.captured for report in reports):
            # The user has averaged since: what happened to p.grad is no factor for hhat to follow.
            self._captured = {}
        ranks = world_size() if self._divide_by_all else len(reports)
        self.bytes = products.reduce(ranks * len(self.samples))
        for param in self.grads:
            if param not in products.seen and not products.seen_anywhere(param):
                raise RuntimeError(
                    f"a gradient of a parameter of shape {tuple(param.shape)} did not come from backward on any rank, "
                    "so its product with the noise is unknown; pass noise='shared'"
                )
        self.estimates = {param: view for param, view in products.views.items() if param in self.grads}

    def _total(self) -> Tensor:
        return fingerprint(grad for grad in map(self.gradient, self.grads) if grad is not None)

    @staticmethod
    def _refuse(reports: list[Report]) -> None:
        """Raise, on all ranks alike, where the ranks' samples and gradients do not make an average."""
        places = [(int(report.draws), int(report.samples)) for report in reports]
        if len(set(places)) > 1:
            raise RuntimeError(
                f"the ranks are not at the same step: (first draw, samples) are {places}; every rank must take the "
                "same number of samples before each step(), and load the same checkpoint"
            )
        sums = [report.now for report in reports]
        if any(value != sums[0] for value in sums if value == value):
            raise RuntimeError(
                f"the gradients differ between ranks (sums {sums}); wrap the model in DistributedDataParallel, "
                "let the last backward before step() synchronize, or average p.grad yourself"
            )
        local = [report.local for report in reports]
        if len(local) > 1 and local[0] != 0.0 and all(value == local[0] for value in local):
            raise RuntimeError(
                "the gradients of all ranks were equal when backward left them, though their samples differ: they were "
                "averaged before the products with the noise could be taken. Leave the averaging to "
                "DistributedDataParallel or do it after backward; or pass noise='shared'"
            )
