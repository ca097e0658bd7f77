"""Plain DistributedDataParallel: every rank draws its own sample, and nothing else changes.

torchrun --nproc-per-node 2 examples/ddp.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import varlearn
from varlearn.metrics import accuracy, nll
from varlearn.posterior import DiagGaussian
from varlearn.prediction import gather_ranks, predict

EPOCHS = 6


def rings(count: int, seed: int) -> TensorDataset:
    """Points inside and outside of a circle."""
    x = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x.norm(dim=1) > 1.2).long())


def main() -> None:
    """Train on a share of the data per rank, then predict on a share and put the predictions together."""
    dist.init_process_group("gloo")
    train, test = rings(2048, seed=0), rings(501, seed=1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    net = DistributedDataParallel(model)
    loader = DataLoader(train, batch_size=32, sampler=(sampler := DistributedSampler(train)))
    batch_size = loader.batch_size * dist.get_world_size()
    opt = varlearn.VAdamW.for_loader(model, loader, epochs=EPOCHS, batch_size=batch_size, seed=0)
    schedule = varlearn.optim.warmup_cosine(opt)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            with opt.sampled_params(train=True):
                opt.zero_grad()
                cross_entropy(net(x), y).backward()
            opt.step()
            schedule.step()
    share = DataLoader(test, batch_size=64, sampler=DistributedSampler(test, shuffle=False))
    posterior = DiagGaussian.from_optimizer(model, opt)
    predictions = gather_ranks(predict(model, posterior, share, samples=16), size=len(test))
    if dist.get_rank() == 0:
        assert predictions.targets is not None
        scores = accuracy(predictions.log_probs, predictions.targets), nll(predictions.log_probs, predictions.targets)
        print(f"{len(predictions.log_probs)} examples, accuracy {scores[0]:.3f}, NLL {scores[1]:.3f}")
        print(f"{opt.step_bytes} bytes per step for the products, beside DDP's gradients")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
