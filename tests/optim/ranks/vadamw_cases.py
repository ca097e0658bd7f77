"""Variational AdamW in two gloo processes: averages over ranks, shards, and their checkpoints; what each rank saw."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from tests.optim.ranks.fsdp_cases import batch, make_model, rows, shard, whole
from varlearn import VAdamW

STEPS = 12  # the prior is measured again after ten
SETTINGS: dict[str, Any] = {"lr": 0.05, "n": 24, "batch_size": 12, "betas": (0.9, 0.9), "seed": 0, "ess": 100.0}


def outcome(net: nn.Module, opt: VAdamW) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, param in net.named_parameters():
        state = opt.state[param]
        found[name] = whole(param)
        found[f"{name}/v"], found[f"{name}/m"] = whole(state["exp_avg_sq"]), whole(state["exp_avg"])
        found[f"{name}/s"] = torch.tensor([state["prior_std"], state["prior_rms"]], dtype=torch.float64)
    return found | {"kl": opt.kl(), "rise": torch.tensor([each.loss_rise for each in opt.diagnostics()])}


def go(net: nn.Module, opt: VAdamW, steps: range, number: int = 0, of: int = 1, blocks: int = 1) -> list[Tensor]:
    """Take steps on rows `number` of `of`; return the weights of each sample."""
    seen = []
    for step in steps:
        for block in range(blocks):
            opt.zero_grad()
            with opt.sampled_params(train=True):
                seen.append(torch.cat([whole(param).flatten() for param in net.parameters()]))
                net(rows(batch(step, block, torch.float64), number, of)).square().mean().backward()
        opt.step()
    return seen


def plain(blocks: int = 1, **options: Any) -> dict[str, Any]:
    net = make_model()
    opt = VAdamW(net.parameters(), noise="shared", **SETTINGS | options)
    go(net, opt, range(STEPS), blocks=blocks)
    return outcome(net, opt)


def under_ddp(rank: int, noise: str, **options: Any) -> dict[str, Any]:
    net = make_model()
    opt = VAdamW(net.parameters(), noise=noise, **SETTINGS | options)  # type: ignore[arg-type]
    wrapped = DistributedDataParallel(net)
    start = torch.cat([param.detach().flatten().clone() for param in net.parameters()])
    seen = go(wrapped, opt, range(STEPS), rank, 2)
    return outcome(net, opt) | {"start": start, "seen": seen, "bytes": opt.step_bytes}


def on_two(rank: int, folder: Path) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (2,))

    def sharded(blocks: int = 1, **options: Any) -> dict[str, Any]:
        net = shard(make_model(), mesh)
        opt = VAdamW(net.parameters(), **SETTINGS | options)
        go(net, opt, range(STEPS), rank, 2, blocks)
        return outcome(net, opt)

    clip = {"max_grad_norm": 0.05}
    return {
        "shared": (under_ddp(rank, "shared"), plain()),
        "shared, clipped": (under_ddp(rank, "shared", **clip), plain(**clip)),
        "independent": under_ddp(rank, "independent"),
        "sharded": (sharded(), plain()),
        "sharded, two blocks": (sharded(2, **clip), plain(2, **clip)),
        "resumed": resumed(rank, folder),
    }


def resumed(rank: int, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run that is annealed, saved after seven steps and loaded into fresh objects, and the run without a break."""
    settings = SETTINGS | {"ess": None}

    def build() -> tuple[nn.Module, VAdamW]:
        net = shard(make_model(), init_device_mesh("cpu", (2,)))
        return net, VAdamW(net.parameters(), **settings)

    def parts(net: nn.Module, opt: VAdamW) -> dict[str, Any]:
        return {"model": get_model_state_dict(net), "optimizer": get_optimizer_state_dict(net, opt)}

    net, opt = build()
    go(net, opt, range(7), rank, 2)
    dcp.save(parts(net, opt), checkpoint_id=folder / "vadamw")
    go(net, opt, range(7, STEPS), rank, 2)
    other, other_opt = build()
    state = parts(other, other_opt)
    dcp.load(state, checkpoint_id=folder / "vadamw")
    set_model_state_dict(other, state["model"])
    set_optimizer_state_dict(other, other_opt, state["optimizer"])
    go(other, other_opt, range(7, STEPS), rank, 2)
    return outcome(other, other_opt), outcome(net, opt)
