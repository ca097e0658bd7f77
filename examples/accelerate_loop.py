"""Accelerate: its usual loop, with `optimizer.train()` before the forward pass."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from varlearn import VAdamW, calibrate
from varlearn.integrations.accelerate import save_posterior_with_state
from varlearn.integrations.wrapped import posterior_of
from varlearn.metrics import nll
from varlearn.optim import warmup_cosine
from varlearn.prediction import predict

EPOCHS, N, BATCH, ACCUMULATE = 6, 512, 16, 2


def loader(seed: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Points of the plane, and their quadrants."""
    points = torch.randn(N, 2, generator=torch.Generator().manual_seed(seed))
    quadrants = 2 * (points[:, 0] > 0).long() + (points[:, 1] > 0).long()
    return DataLoader(TensorDataset(points, quadrants), batch_size=BATCH)


def main() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 4))
    steps = EPOCHS * N // (BATCH * ACCUMULATE)
    optimizer = VAdamW.for_model(model, n=N, batch_size=BATCH * ACCUMULATE, steps=steps, max_grad_norm=1.0)
    scheduler = warmup_cosine(optimizer)
    model, optimizer, train, scheduler = accelerator.prepare(model, optimizer, loader(0), scheduler)
    save_posterior_with_state(accelerator, model, optimizer)

    for _ in range(EPOCHS):
        for points, quadrants in train:
            with accelerator.accumulate(model):
                optimizer.train()  # the weights are a sample from here to step()
                accelerator.backward(cross_entropy(model(points), quadrants))
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
    accelerator.save_state("state")  # resumes bit for bit; has a posterior.safetensors

    posterior = calibrate(model, posterior_of(model, optimizer), loader(2), samples=16)
    test = loader(1)
    mean, averaged = predict(model, posterior.at_mean(), test), predict(model, posterior, test, samples=16)
    losses = [nll(result.log_probs, result.targets) for result in (mean, averaged)]
    print(f"NLL at the mean {losses[0]:.3f}, averaged {losses[1]:.3f}")


if __name__ == "__main__":
    main()
