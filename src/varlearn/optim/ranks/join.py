"""Ranks with fewer batches than others: `with Join([model, optimizer]):` of `torch.distributed.algorithms`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from varlearn.core.shards import is_sharded
from varlearn.optim.ranks import ddp, rank_agreement
from varlearn.optim.state import OPTIONAL

if TYPE_CHECKING:
    from varlearn.optim.variational import VariationalOptimizer


class Shadow:
    """What a rank does at the others' steps once its own inputs are used up: the interface of PyTorch's `JoinHook`."""

    def __init__(self, optimizer: VariationalOptimizer) -> None:
        self._optimizer = optimizer

    @torch.no_grad()
    def main_hook(self) -> None:
        """Take part in one step of the others, with nothing."""
        optimizer = self._optimizer
        if optimizer._is_distributed():
            products = optimizer._sample(train=True).products
            assert isinstance(products, ddp.LocalProducts)
            rank_agreement.exchange(rank_agreement.RankReport(), products.flat.device)
            products.reduce(1.0)
        elif rank_agreement.world_size() > 1:
            rank_agreement.exchange(rank_agreement.RankReport(), optimizer.join_device)

    @torch.no_grad()
    def post_hook(self, is_last_joiner: bool) -> None:
        """Take over the state of a rank that has seen all steps. The weights come from the model's own hook."""
        optimizer = self._optimizer
        members = optimizer._sample(train=True).members
        states, device = [member.state for member in members], members[0].param.device
        source = torch.tensor(rank_agreement.rank() if is_last_joiner else -1, device=device)
        dist.all_reduce(source, dist.ReduceOp.MAX)
        groups = optimizer.param_groups
        counts = [state["step"] for state in states] + [group["draws"] for group in groups]
        shared = torch.tensor(counts, device=device)
        names = (*optimizer.rule.state, *OPTIONAL)
        for tensor in (shared, *(state[name] for state in states for name in names if name in state)):
            dist.broadcast(tensor, int(source))
        counts = shared.tolist()
        for state, step in zip(states, counts, strict=False):
            state["step"] = step
        for group, draws in zip(groups, counts[len(states) :], strict=True):
            group["draws"] = draws


class UnevenInputs:
    """What makes an optimizer one of `Join`'s joinables; the model comes first among them.

    Use one backward that synchronizes per step. Where gradients are averaged over the ranks that are left rather than
    over all (`divide_by_initial_world_size=False`), so are the products.
    """

    _divide = True
    _join_config: Any = None  # set by `Join`

    def join_hook(self: Any, **options: Any) -> Shadow:
        """Called by `Join`."""
        if any(is_sharded(param) for group in self.param_groups for param in group["params"]):
            raise ValueError("Join is for replicated models (DDP); a sharded one needs as many batches on every rank")
        self._divide = options.get("divide_by_initial_world_size", True)
        self._agree()  # here all ranks meet; one of them may have no batch, and never draw
        return Shadow(self)

    @property
    def _divide_by_all(self) -> bool:
        """Whether ranks without inputs count in the averages."""
        if self._join_config is not None and self._join_config.enable and self._join_config.is_first_joinable:
            raise RuntimeError(
                "Join([optimizer, model]) would answer the ranks that go on in the wrong order; "
                "pass the model first: Join([model, optimizer])"
            )
        return self._divide

    @property
    def join_device(self: Any) -> torch.device:
        """Where the flags that `Join` exchanges live."""
        first: Tensor = self.param_groups[0]["params"][0]
        return first.device

    @property
    def join_process_group(self) -> Any:
        """All ranks."""
        return dist.group.WORLD
