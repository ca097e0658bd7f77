"""FSDP2: weights, optimizer state and posterior stay sharded; a checkpoint resumes on any number of ranks.

torchrun --nproc-per-node 2 examples/fsdp2.py runs/fsdp2
torchrun --nproc-per-node 3 examples/fsdp2.py runs/fsdp2    # goes on where the two stopped
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss

from varlearn import IVON
from varlearn.posterior import DiagGaussian, save
from varlearn.prediction import predict_regression

STEPS = 100


def main(folder: Path) -> None:
    """Train for STEPS steps from where the last run stopped, predict, save checkpoint and posterior."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 33), nn.Tanh(), nn.Linear(33, 1))
    fully_shard(net[0])
    fully_shard(net)
    opt = IVON(net.parameters(), lr=0.3, ess=600.0, betas=(0.9, 0.99), seed=0)
    if (folder / "checkpoint").exists():
        model_state, state = get_state_dict(net, opt)
        dcp.load({"model": model_state, "optimizer": state}, checkpoint_id=folder / "checkpoint")
        set_state_dict(net, opt, model_state_dict=model_state, optim_state_dict=state)
    done = opt.param_groups[0]["draws"]  # one draw per step here
    for step in range(done, done + STEPS):
        x = torch.rand(60, 1, generator=torch.Generator().manual_seed(step)) * 2 - 1
        mine = x[rank::world]  # a rank takes its share of the batch
        with opt.sampled_params(train=True):
            opt.zero_grad()
            mse_loss(net(mine), torch.sin(3 * mine)).backward()
        opt.step()
    model_state, state = get_state_dict(net, opt)
    dcp.save({"model": model_state, "optimizer": state}, checkpoint_id=folder / "checkpoint")
    posterior = DiagGaussian.from_optimizer(net, opt)
    predicted = predict_regression(net, posterior, [torch.tensor([[0.5]])], samples=16, noise_variance=0.0)
    whole = posterior.gathered()
    if rank == 0:
        save(whole, folder / "posterior.safetensors")
        print(f"step {step + 1}: f(0.5) = {predicted.mean.item():.3f} +- {predicted.epistemic.sqrt().item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
