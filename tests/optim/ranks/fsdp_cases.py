"""The same training sharded and unsharded, on the same samples; what came out of both."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from varlearn import IVON

STEPS = 4
BATCH = 12  # rows, divided evenly among 1, 2, 3 or 4 ranks
SETTINGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.9), "weight_decay": 0.01, "seed": 0}
TENSORS = ("momentum", "hess")


def make_model(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Odd sizes: shards are uneven, begin at odd elements, and a rank's part of the last bias may be empty."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))
    return net.to(dtype)


def even_model() -> nn.Sequential:
    """Sizes that tensor parallelism takes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def shard(net: nn.Sequential, mesh: DeviceMesh, **options: Any) -> nn.Sequential:
    """The last layer belongs to the root module, which keeps gathered weights until backward."""
    for layer in list(net)[:-1]:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    fully_shard(net, mesh=mesh, **options)
    return net


def batch(step: int, part: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(10 * step + part)
    return torch.randn(BATCH, 6, generator=generator, dtype=torch.float64).to(dtype)


def rows(x: Tensor, number: int, of: int) -> Tensor:
    return x[number * len(x) // of : (number + 1) * len(x) // of]


class Training:
    """A loop with its ways to vary; `number` of `of` data-parallel ranks takes its rows of each batch."""

    def __init__(self, blocks: int = 1, micro: int = 1, modes: bool = False, peek: bool = False, clip: bool = False):
        self.blocks, self.micro, self.modes, self.peek, self.clip = blocks, micro, modes, peek, clip

    def go(self, net: nn.Module, opt: IVON, steps: range, number: int = 0, of: int = 1) -> None:
        dtype = next(net.parameters()).dtype
        for step in steps:
            if self.peek:  # without backward a root module keeps the weights it gathered
                with torch.no_grad():
                    net(batch(step, 99, dtype))
            for block in range(self.blocks):
                opt.zero_grad()
                if self.modes:
                    opt.train()
                    self.backward(net, step, block, dtype, number, of)
                else:
                    with opt.sampled_params(train=True):
                        self.backward(net, step, block, dtype, number, of)
            if self.clip:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            opt.step()

    def backward(self, net: nn.Module, step: int, block: int, dtype: torch.dtype, number: int, of: int) -> None:
        for part in range(self.micro):
            if hasattr(net, "set_requires_gradient_sync"):
                net.set_requires_gradient_sync(part == self.micro - 1)  # type: ignore[operator]
            x = rows(batch(step, self.micro * block + part, dtype), number, of)
            out = net(x)
            (out.to(torch.promote_types(dtype, torch.float32)).square().mean() / self.micro).backward()


def whole(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def outcome(net: nn.Module, opt: IVON) -> dict[str, Any]:
    """Everything in full tensors, by name, and what the optimizer says about it."""
    found: dict[str, Any] = {}
    for name, param in net.named_parameters():
        found[name] = whole(param)
        for tensor in TENSORS + (("mean",) if "mean" in opt.state[param] else ()):
            found[f"{name}/{tensor}"] = whole(opt.state[param][tensor])
    found["kl"] = opt.kl()
    found["diagnostics"] = opt.diagnostics()
    found["skipped"] = opt.skipped_steps
    return found


def both(
    wrap: Callable[[nn.Sequential], nn.Sequential],
    training: Training,
    number: int,
    of: int,
    model: Callable[[], nn.Sequential] = make_model,
    **options: Any,
) -> dict[str, Any]:
    """The unsharded run on the whole batch, and the sharded one on this rank's rows."""
    plain = model()
    plain_opt = IVON(plain.parameters(), noise="shared", **SETTINGS | options)
    training.go(plain, plain_opt, range(STEPS))
    net = wrap(model())
    opt = IVON(net.parameters(), **SETTINGS | options)
    training.go(net, opt, range(STEPS), number, of)
    return {"plain": outcome(plain, plain_opt), "sharded": outcome(net, opt)}


def on_three(rank: int, folder: Path) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (3,))

    def wrap(net: nn.Sequential) -> nn.Sequential:
        return shard(net, mesh)

    def float32() -> nn.Sequential:
        return make_model(torch.float32)

    found = {
        "plain": both(wrap, Training(), rank, 3),
        "two blocks": both(wrap, Training(blocks=2), rank, 3),
        "micro-batches": both(wrap, Training(micro=2), rank, 3),
        "modes": both(wrap, Training(micro=2, modes=True), rank, 3),
        "after a look": both(wrap, Training(peek=True), rank, 3),
        "clipped by PyTorch": both(wrap, Training(clip=True), rank, 3),
        "max_grad_norm": both(wrap, Training(), rank, 3, max_grad_norm=0.05),
        "lean": both(wrap, Training(), rank, 3, memory="lean"),
        "prior": both(wrap, Training(), rank, 3, prior_mean="init"),
        "squared gradient": both(wrap, Training(blocks=2), rank, 3, hess_approx="squared_gradient"),
        "native": both(wrap, Training(blocks=2), rank, 3, model=float32),
        "foreach": both(wrap, Training(blocks=2), rank, 3, model=float32, foreach=True),
        "loop": both(wrap, Training(blocks=2), rank, 3, model=float32, foreach=False, fused=False),
        "bfloat16": both(wrap, Training(), rank, 3, model=lambda: make_model(torch.bfloat16)),
    }
    return found | {"nan": poisoned(wrap(make_model()), rank), "held back": held_back(wrap(make_model()))}


def poisoned(net: nn.Sequential, rank: int) -> dict[str, Any]:
    """NaN in one rank's shard alone."""
    opt = IVON(net.parameters(), **SETTINGS)
    training = Training()
    training.go(net, opt, range(1), rank, 3)
    before = outcome(net, opt)
    with opt.sampled_params(train=True):
        opt.zero_grad()
        training.backward(net, 1, 0, torch.float64, rank, 3)
    if rank == 1:
        grad = net.get_parameter("0.weight").grad
        assert isinstance(grad, DTensor)
        grad.to_local()[0, 0] = torch.nan
    opt.step()
    return {"before": before, "after": outcome(net, opt)}


def held_back(net: nn.Sequential) -> str:
    """A block whose gradients were not synchronized."""
    opt = IVON(net.parameters(), **SETTINGS)
    net.set_requires_gradient_sync(False)  # type: ignore[operator]
    try:
        with opt.sampled_params(train=True):
            net(batch(0, 0, torch.float64)).square().mean().backward()
    except RuntimeError as error:
        return str(error)
    return ""


def on_four(rank: int, folder: Path) -> dict[str, Any]:
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    row = grid.get_coordinate()[0]  # type: ignore[index]

    def hybrid(net: nn.Sequential) -> nn.Sequential:
        return shard(net, grid)

    def tensor_parallel(net: nn.Sequential) -> nn.Sequential:
        return parallelize_module(net, grid["model"], {"0": ColwiseParallel(), "2": RowwiseParallel()})  # type: ignore

    def both_ways(net: nn.Sequential) -> nn.Sequential:
        return shard(tensor_parallel(net), grid["data"])

    found = {
        "hybrid": both(hybrid, Training(blocks=2), rank, 4, max_grad_norm=0.05),
        "tensor parallel": both(tensor_parallel, Training(), 0, 1, even_model, max_grad_norm=0.05),
        "sharded tensor parallel": both(both_ways, Training(blocks=2), row, 2, even_model, max_grad_norm=0.05),
        "policy": policy(grid["data"], row),
    }
    save(folder, rank)
    return found


def policy(mesh: DeviceMesh, row: int) -> dict[str, Any]:
    """bfloat16 forward and backward, float32 state and reduction."""
    options = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    net = shard(make_model(torch.float32), mesh, **options)
    opt = IVON(net.parameters(), **SETTINGS)
    Training().go(net, opt, range(STEPS), row, 2)
    dtypes = {
        str(tensor.dtype) for param in net.parameters() for tensor in (param, *map(opt.state[param].get, TENSORS))
    }
    plain = make_model(torch.float32)
    plain_opt = IVON(plain.parameters(), noise="shared", **SETTINGS)
    Training().go(plain, plain_opt, range(STEPS))
    return {"dtypes": dtypes, "plain": outcome(plain, plain_opt), "sharded": outcome(net, opt)}


# Checkpoints: saved by four ranks, loaded by two and by three; each goes on as the uninterrupted run does.


def build(world: int) -> tuple[nn.Sequential, IVON]:
    net = shard(make_model(), init_device_mesh("cpu", (world,)))
    return net, IVON(net.parameters(), **SETTINGS)


def parts(net: nn.Module, opt: IVON) -> dict[str, Any]:
    return {"model": get_model_state_dict(net), "optimizer": get_optimizer_state_dict(net, opt)}


def save(folder: Path, rank: int) -> None:
    net, opt = build(4)
    Training().go(net, opt, range(2), rank, 4)
    dcp.save(parts(net, opt), checkpoint_id=folder / "checkpoint")
    at_save = outcome(net, opt)
    Training().go(net, opt, range(2, 4), rank, 4)
    finished = outcome(net, opt)
    if rank == 0:
        torch.save({"saved": at_save, "finished": finished}, folder / "saved.pt")
    dist.barrier()


def load(rank: int, folder: Path) -> dict[str, Any]:
    world = dist.get_world_size()
    net, opt = build(world)
    state = parts(net, opt)
    dcp.load(state, checkpoint_id=folder / "checkpoint")
    set_model_state_dict(net, state["model"])
    set_optimizer_state_dict(net, opt, state["optimizer"])
    loaded = outcome(net, opt)
    counts = {opt.state[param]["step"] for param in net.parameters()}, opt.param_groups[0]["draws"]
    Training().go(net, opt, range(2, 4), rank, world)
    known = torch.load(folder / "saved.pt", weights_only=False)
    return known | {"loaded": loaded, "counts": counts, "continued": outcome(net, opt)}


def on_two(rank: int, folder: Path) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (2,))
    return {"plain": both(lambda net: shard(net, mesh), Training(), rank, 2), "loaded": load(rank, folder)}


def loading_on_three(rank: int, folder: Path) -> dict[str, Any]:
    return on_three(rank, folder) | {"loaded": load(rank, folder)}
