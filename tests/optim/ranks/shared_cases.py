"""Training with one sample for all ranks, where nobody has made sure that the ranks have the same seed."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from varlearn import IVON

STEPS = 6
SETTINGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.9), "weight_decay": 0.01}


def model() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    torch.seed()  # what torchrun's processes start with: another seed in each
    return net


def inputs(rank: int, step: int) -> Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(100 * rank + step), dtype=torch.float64)


def whole(tensor: Tensor) -> Tensor:
    """In full, or, of a sharded tensor, as this rank and those along its shards see it."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def train(net: nn.Module, opt: IVON, rank: int, steps: range = range(STEPS)) -> list[Tensor]:
    """The samples at which gradients were taken."""
    thetas = []
    for step in steps:
        opt.zero_grad()
        with opt.sampled_params(train=True):
            thetas.append(torch.cat([whole(p).flatten() for p in net.parameters()]))
            net(inputs(rank, step)).square().mean().backward()
        opt.step()
    return thetas


def outcome(opt: IVON, thetas: list[Tensor]) -> dict[str, Any]:
    params = [param for group in opt.param_groups for param in group["params"]]
    states = [opt.state[p] for p in params if p in opt.state]
    state = {name: [whole(each[name]) for each in states] for name in ("momentum", "hess")}
    groups = [{key: value for key, value in group.items() if key != "params"} for group in opt.param_groups]
    return state | {"mean": [whole(p) for p in params], "thetas": thetas, "groups": groups}


def reference(seed: int, ranks: int) -> dict[str, Any]:
    """One process without ranks in it, on the batches of all ranks. Called by all of them, on the same numbers."""
    net = model()
    opt = IVON(net.parameters(), noise="shared", seed=seed, **SETTINGS)
    thetas = []
    for step in range(STEPS):
        opt.zero_grad()
        with opt.sampled_params(train=True):
            thetas.append(torch.cat([whole(p).flatten() for p in net.parameters()]))
            for rank in range(ranks):
                (net(inputs(rank, step)).square().mean() / ranks).backward()
        opt.step()
    return outcome(opt, thetas)


def with_reference(rank: int, wrap: Callable[[nn.Sequential], nn.Module], **options: Any) -> dict[str, Any]:
    net = wrap(model())
    opt = IVON(net.parameters(), **SETTINGS | options)
    own_seed = opt.param_groups[0]["seed"]
    found = outcome(opt, train(net, opt, rank))
    found["own seed"] = own_seed
    found["reference"] = reference(opt.param_groups[0]["seed"], dist.get_world_size())
    return found


def ddp(rank: int, folder: Path) -> dict[str, Any]:
    return {
        "no seed": with_reference(rank, DistributedDataParallel, noise="shared"),
        "seeds differ": with_reference(rank, DistributedDataParallel, noise="shared", seed=10 + rank),
        "largest seed": with_reference(rank, DistributedDataParallel, noise="shared", seed=2**64 - 1 - rank),
        "independent": independent(rank),
        "resumed": resumed(rank, folder),
        "group added": group_added(rank),
        "one rank without batches": one_rank_without_batches(rank),
        "evaluation on rank 0": evaluation_on_rank_0(rank),
        "refusals": refusals(rank),
    }


def independent(rank: int) -> dict[str, Any]:
    net = DistributedDataParallel(model())
    opt = IVON(net.parameters(), seed=10 + rank, **SETTINGS)
    return outcome(opt, train(net, opt, rank))


def resumed(rank: int, folder: Path) -> dict[str, Any]:
    """Every rank loads what rank 0 saved, into an optimizer that has its own seed and has drawn with it."""
    net = DistributedDataParallel(model())
    opt = IVON(net.parameters(), noise="shared", **SETTINGS)
    train(net, opt, rank, range(3))
    saved = [None] * dist.get_world_size()
    dist.all_gather_object(saved, opt.state_dict())
    later = DistributedDataParallel(model())
    later_opt = IVON(later.parameters(), noise="shared", seed=77 + rank, **SETTINGS)
    train(later, later_opt, rank, range(1))
    later.load_state_dict(copy.deepcopy(net.state_dict()))
    later_opt.load_state_dict(saved[0])  # type: ignore[arg-type]
    uninterrupted = outcome(opt, train(net, opt, rank, range(3, STEPS)))
    after = outcome(later_opt, train(later, later_opt, rank, range(3, STEPS)))
    return {"saved": saved, "uninterrupted": uninterrupted, "after": after}


def group_added(rank: int) -> dict[str, Any]:
    first, last = model(), nn.Linear(2, 2).double().requires_grad_(False)
    both = nn.Sequential(first, last)
    opt = IVON(first.parameters(), noise="shared", **SETTINGS)
    train(DistributedDataParallel(both), opt, rank, range(2))
    last.requires_grad_(True)
    net = DistributedDataParallel(both)
    opt.add_param_group({"params": list(last.parameters())})
    return outcome(opt, train(net, opt, rank, range(2, 4)))


def one_rank_without_batches(rank: int) -> dict[str, Any]:
    net = DistributedDataParallel(model())
    opt = IVON(net.parameters(), noise="shared", **SETTINGS)
    joinables: list[Any] = [net, opt]
    with Join(joinables):
        thetas = train(net, opt, rank, range(0 if rank == 0 else 2))
    return outcome(opt, thetas)


def evaluation_on_rank_0(rank: int) -> dict[str, Any]:
    """A look at a sample on one rank alone neither waits for the others nor changes training."""
    net = DistributedDataParallel(model())
    opt = IVON(net.parameters(), noise="shared", seed=rank, **SETTINGS)
    if rank == 0:
        with opt.sampled_params():
            net.module(inputs(0, 0))
    return outcome(opt, train(net, opt, rank))


def refusals(rank: int) -> dict[str, str]:
    """What is said where ranks drift apart; nothing, where the state has changed all the same."""
    found = {}
    for name in ("not averaged", "other seed", "other draws", "other number of samples", "other draws at the start"):
        bare = model()
        net: Any = bare if name == "not averaged" else DistributedDataParallel(bare)
        opt = IVON(bare.parameters(), noise="shared", sync=name == "not averaged", **SETTINGS)
        if name != "other draws at the start":
            with opt.sampled_params(train=True):
                net(inputs(0, 0)).square().mean().backward()
            opt.step()
        before = outcome(opt, [])
        for group in opt.param_groups:
            group["seed"] += rank if name == "other seed" else 0
            group["draws"] += rank if name.startswith("other draws") else 0
        try:
            for _ in range(2 if name == "other number of samples" and rank == 0 else 1):
                with opt.sampled_params(train=True):
                    part = bare if name == "other number of samples" else net
                    part(inputs(rank, 1)).square().mean().backward()
            opt.step()
            found[name] = ""
        except RuntimeError as error:
            found[name] = str(error)
        after = outcome(opt, [])
        for key in ("mean", "hess", "momentum"):
            if not all(map(torch.equal, before[key], after[key])):
                found[name] = ""
    return found


def few(rank: int, folder: Path) -> dict[str, Any]:
    """Three or more ranks."""
    return {"no seed": with_reference(rank, DistributedDataParallel, noise="shared")}


def sharded(rank: int, folder: Path) -> dict[str, Any]:
    """Hybrid sharding and plain sharding on two ranks."""
    hybrid = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicas", "shards"))
    line = init_device_mesh("cpu", (2,))

    def on_hybrid(net: nn.Sequential) -> nn.Module:
        return fully_shard(net, mesh=hybrid)

    def on_line(net: nn.Sequential) -> nn.Module:
        return fully_shard(net, mesh=line)

    return {
        "hybrid": with_reference(rank, on_hybrid),
        "shards": with_reference(rank, on_line),
        "shards, seeds differ": with_reference(rank, on_line, seed=10 + rank),
        "evaluated": evaluated(rank, on_hybrid),
        "other seed": other_seed(rank, on_hybrid),
    }


def evaluated(rank: int, wrap: Callable[[nn.Sequential], nn.Module]) -> list[Tensor]:
    """The sample that ranks evaluate before they train."""
    net = wrap(model())
    opt = IVON(net.parameters(), **SETTINGS)
    with opt.sampled_params():
        return [whole(param) for param in net.parameters()]


def other_seed(rank: int, wrap: Callable[[nn.Sequential], nn.Module]) -> str:
    net = wrap(model())
    opt = IVON(net.parameters(), **SETTINGS)
    train(net, opt, rank, range(1))
    opt.param_groups[0]["seed"] += rank
    try:
        train(net, opt, rank, range(1, 2))
    except RuntimeError as error:
        return str(error)
    return ""
