"""Several processes, each with its own sample: the averages over J devices of Section 3.

A rank multiplies its own gradient by its own noise before anything is averaged. Hooks see what backward is about to add
to `p.grad`, after the user's own hooks and before `DistributedDataParallel`, so neither `no_sync` nor a handle to the
wrapped model is needed; at `step()` one buffer of products is reduced, after the ranks have told each other where they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge
from torch.utils.hooks import RemovableHandle

from varlearn.core.dtypes import state_dtype
from varlearn.optim.engine.plan import Fold, Member
from varlearn.optim.ranks.rank_agreement import Place, RankReport, exchange, refuse_different, world_size
from varlearn.optim.sampling.members import Members
from varlearn.optim.sampling.sample import Sample
from varlearn.optim.sampling.sample_average import SampleAverage, dense_grad

_FINGERPRINT = 1024  # entries of a gradient, spread over it, that tell whether two ranks have the same
_COMPARED = 8  # gradients that ranks with shared noise compare at a step, in turns


def fingerprint(grads: Iterable[Tensor]) -> Tensor:
    """A number that is equal on ranks with equal gradients, and almost surely different on others.

    It is the sum of asinh(g): in a plain sum one huge entry would hide all others.

    >>> fingerprint([torch.tensor([0.0, 1e30])]) == fingerprint([torch.tensor([1.0, 1e30])])
    tensor(False)
    """
    parts = [grad.flatten()[:: max(1, grad.numel() // _FINGERPRINT)].double().asinh().sum() for grad in grads]
    same_device = [part.to(parts[0].device) for part in parts]
    return torch.stack(same_device).sum() if parts else torch.zeros((), dtype=torch.float64, device="cpu")


class LocalProducts:
    """hhat of one sample on one rank, collected while backward runs.

    Attributes:
        flat: all products in one buffer, parameter after parameter, so that one reduction serves them all; then, for
            each parameter, 1 if backward made its gradient on this rank.
        views: parameter -> its part of `flat`, in its shape. Only where hhat is a product with the noise.
        seen: parameters whose gradient backward has made.
        fresh: parameters whose `p.grad` has gradients of this sample alone, and not of earlier ones.
        fingerprint: of the gradients that backward has made.
    """

    def __init__(self, sample: Sample, members: Members) -> None:
        self._sample, self._members = sample, members
        products = [each.param for each in sample.members if each.group["hess_approx"] == "reparam"]
        sizes = [param.numel() for param in products]
        like = sample.members[0].param if sample.members else torch.zeros(0, device="cpu")
        count = len(sample.members)
        self.flat = torch.zeros(sum(sizes) + count, dtype=state_dtype(like), device=like.device)
        self._sums, self._marks = self.flat.split([sum(sizes), count])
        parts = self._sums.split(sizes)
        self._number = {each.param: number for number, each in enumerate(sample.members)}
        self.views = {param: part.view(param.shape) for param, part in zip(products, parts, strict=True)}
        self.seen: set[Tensor] = set()
        self.fresh: set[Tensor] = set()
        self.fingerprint = torch.zeros((), dtype=torch.float64, device=like.device)
        self._backwards: dict[Tensor, int] = {}  # parameter -> how many its part of `flat` is the mean of
        self._hooks: list[tuple[Node, RemovableHandle]] = []

    def open(self) -> None:
        """Begin to collect: what accumulates in `p.grad`, and not what `torch.autograd.grad` returns."""
        for member in self._sample.members:
            node = get_gradient_edge(member.param).node  # a reference keeps it, and its hook, alive
            self._hooks.append((node, node.register_prehook(self._collector(member))))

    def close(self) -> None:
        """Stop collecting; what was collected stays."""
        for _, hook in self._hooks:
            hook.remove()
        self._hooks = []

    def forget(self, param: Tensor) -> None:
        """The gradient of a parameter was cleared, and with it what this sample had added to it.

        Raises:
            RuntimeError: if gradients of earlier samples were in it.
        """
        if param in self.seen and param not in self.fresh:
            raise RuntimeError(
                "gradients were cleared after a backward in the second or a later block of a step, and with them those "
                "of the earlier blocks; call zero_grad() before the first backward of a block, or not at all"
            )
        self.fresh.add(param)
        if self._backwards.pop(param, 0):
            self.views[param].zero_()

    def forget_all(self) -> None:
        """The gradients of all parameters are about to be cleared."""
        for param in self._sample.params:
            self.forget(param)

    def _collector(self, member: Member) -> Callable[[tuple[Tensor | None, ...]], None]:
        param = member.param

        @torch.no_grad()
        def collect(grads: tuple[Tensor | None, ...]) -> None:
            (grad,) = grads
            if grad is None:
                return
            if param.grad is None:
                self.forget(param)
            self.seen.add(param)
            self._marks[self._number[param]] = 1.0
            grad = grad.to_dense() if grad.layout != torch.strided else grad
            self.fingerprint += fingerprint([grad])
            if param in self.views:
                count = self._backwards.get(param, 0)
                noise = self._sample.noises[id(member.group)]
                self._members.fold([(member, Fold(grad, None, self.views[param], "reparam", noise, count))])
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
        """After `reduce`: whether backward made the gradient of a parameter on one of the ranks."""
        return bool(self._marks[self._number[param]] > 0.0)


class RankAverage(SampleAverage):
    """The averages over samples and ranks.

    Gradients add up in `p.grad` over the samples, as in ordinary accumulation, so that `no_sync` works as usual: the
    backward that synchronizes then reduces all of them. `p.grad` shows their mean between the blocks.

    Args:
        members: computes the running means.
        place: of this rank before the first sample, equal on all ranks if they go in step.
        divide_by_all: whether ranks without inputs count in the averages, as DDP's `divide_by_initial_world_size`.
    """

    def __init__(self, members: Members, place: Place, divide_by_all: bool = True) -> None:
        super().__init__(members)
        self._place, self._divide_by_all = place, divide_by_all
        self._products: LocalProducts | None = None
        self._captured_total = torch.zeros((), dtype=torch.float64, device="cpu")

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
        """Close a sample; see `SampleAverage.add`."""
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
        for param in sample.params:
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
        mine = RankReport(*self._place, len(self.samples), products.fingerprint, self._captured_total, self._total())
        reports = exchange(mine, products.flat.device)
        refuse_different(reports)
        self._refuse_averaged(reports)
        if any(report.captured != reports[0].captured for report in reports):
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
        return fingerprint(grad for grad in self.gradients(list(self.grads)) if grad is not None)

    @staticmethod
    def _refuse_averaged(reports: list[RankReport]) -> None:
        """Raise, on all ranks alike, where the gradients were averaged before the products were made."""
        local = [report.local for report in reports]
        if len(local) > 1 and local[0] != 0.0 and all(value == local[0] for value in local):
            raise RuntimeError(
                "the gradients of all ranks were equal when backward left them, though their samples differ: they were "
                "averaged before the products with the noise could be taken. Leave the averaging to "
                "DistributedDataParallel or do it after backward; or pass noise='shared'"
            )


class SharedAverage(SampleAverage):
    """The averages of a rank whose sample all ranks share. What must be equal on all of them is compared at `step()`.

    Args:
        members: computes the running means.
        place: of this rank before the first sample.
        device: where numbers are exchanged.
    """

    def __init__(self, members: Members, place: Place, device: torch.device) -> None:
        super().__init__(members)
        self._place, self._device = place, device

    def finish(self) -> None:
        """Raise where the ranks are at different steps, or their gradients were not averaged."""
        grads = [grad for grad in self.gradients(list(self.grads)) if grad is not None]
        first = self._place.step * _COMPARED % max(1, len(grads))
        compared = (grads + grads)[first : first + min(_COMPARED, len(grads))]
        mine = RankReport(*self._place, samples=len(self.samples), now=fingerprint(compared))
        refuse_different(exchange(mine, self._device))
