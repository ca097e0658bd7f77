"""Three steps of IVON in two gloo processes, in several ways to average gradients; what each rank saw."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from varlearn import IVON

STEPS = 3
VARIANTS = ["ddp", "ddp_two_samples", "ddp_no_sync", "averaged_by_hand", "shared", "not_averaged"]


def run(folder: Path) -> list[dict[str, Any]]:
    """For each rank: variant -> samples, gradients, and the state after the steps, as flat tensors."""
    mp.start_processes(worker, args=(str(folder),), nprocs=2, start_method="spawn")
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def flat(tensors: Any) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1).clone() for tensor in tensors])


def local_gradient(model: nn.Module, values: list[Tensor], inputs: Tensor) -> Tensor:
    """The gradient of this rank's loss at given weights, out of sight of optimizer and reducer."""
    leaves = [value.clone().requires_grad_() for value in values]
    named = dict(zip(dict(model.named_parameters()), leaves, strict=True))
    loss = torch.func.functional_call(model, named, (inputs,)).square().mean()
    return flat(torch.autograd.grad(loss, leaves))


def run_variant(variant: str, rank: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    params = list(model.parameters())
    net = nn.parallel.DistributedDataParallel(model) if variant.startswith(("ddp", "shared")) else model
    noise = "shared" if variant == "shared" else "independent"
    opt = IVON(params, lr=0.1, ess=100.0, betas=(0.9, 0.9), weight_decay=0.01, seed=0, noise=noise)
    samples = 2 if variant in ("ddp_two_samples", "ddp_no_sync") else 1
    result: dict[str, Any] = {"start": flat(params), "thetas": [], "grads": [], "samples": samples}
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        used = []
        opt.zero_grad()
        for sample in range(samples):
            inputs = torch.randn(8, 4, generator=generator, dtype=torch.float64)
            with opt.sampled_params(train=True):
                used.append(([p.detach().clone() for p in params], inputs))
                if variant == "ddp_no_sync" and sample + 1 < samples:
                    with net.no_sync():  # type: ignore[operator]
                        net(inputs).square().mean().backward()
                else:
                    net(inputs).square().mean().backward()
        if variant == "averaged_by_hand":
            for param in params:
                dist.all_reduce(param.grad)
                param.grad /= 2
        try:
            opt.step()
        except RuntimeError as error:
            result["error"] = str(error)
            break
        for values, inputs in used:
            result["thetas"].append(flat(values))
            result["grads"].append(local_gradient(model, values, inputs))
    result |= {"mean": flat(params), "hess": flat(opt.state[p]["hess"] for p in params)}
    return result | {"momentum": flat(opt.state[p]["momentum"] for p in params)}


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        torch.save({variant: run_variant(variant, rank) for variant in VARIANTS}, f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()
