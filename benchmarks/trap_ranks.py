"""The probes of `benchmarks.traps` that need two processes."""

from __future__ import annotations

import functools
import tempfile
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

_ESS = 100.0


class Quadratic(nn.Module):
    """The loss sum of squares, curvature 2, of a weight at its minimum."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1000))

    def forward(self) -> Tensor:
        return self.weight.square().sum()


@functools.cache
def two_ranks(name: str, equal_seeds: bool) -> list[dict[str, Any]]:
    """One step under plain DistributedDataParallel in two gloo processes; what each rank saw.

    Returns:
        For each rank its sample `theta`, its own gradient there `grad`, 1/sigma^2 `precision`, and then `hess`.
    """
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_rank, args=(folder, name, equal_seeds), nprocs=2, start_method="spawn")
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(2)]


def _rank(rank: int, folder: str, name: str, equal_seeds: bool) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0 if equal_seeds else rank)
    model = Quadratic()
    net = nn.parallel.DistributedDataParallel(model)
    opt = _make(name, model)
    with opt.sampled_params(train=True):
        opt.zero_grad()
        theta = model.weight.detach().clone()
        net().backward()
    opt.step()
    hess = opt.param_groups[0]["hess"] if name == "ivon-opt" else opt.state[model.weight]["hess"]
    # h = 1 and delta = 0 at the draw, so 1/sigma^2 = ess; the rank's own gradient is 2 theta.
    torch.save({"theta": theta, "grad": 2.0 * theta, "precision": _ESS, "hess": hess}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def _make(name: str, model: nn.Module) -> Any:
    """`sync` is ivon-opt's switch for several ranks; varlearn takes it and does not need it."""
    if name == "ivon-opt":
        from ivon import IVON
    else:
        from varlearn import IVON
    return IVON(model.parameters(), lr=0.1, ess=_ESS, beta2=1.0 - 1e-3, weight_decay=0.0, sync=True)
