"""The path that inductor compiles, here for the CPU: the same definition makes the kernels of accelerators."""

import math

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from varlearn.core.update import Hyper
from varlearn.optim import compiled, loop
from varlearn.optim.tasks import Draw, Noise, Step


def run(path: object, largest: int) -> Tensor:
    """Twelve steps on a list of small tensors and a large one, with every scalar changing."""
    generator = torch.Generator().manual_seed(0)
    means = [torch.randn(size, generator=generator) for size in (5, 300, 7, largest)]
    hess = [torch.rand(mean.shape, generator=generator) + 0.1 for mean in means]
    momenta = [torch.zeros_like(mean) for mean in means]
    thetas = [torch.empty_like(mean) for mean in means]
    for t in range(1, 13):
        noises = [Noise(1_000 * t + index, 50.0 + t, 1e-3) for index in range(len(means))]
        path.draw([Draw(*row) for row in zip(thetas, means, hess, noises, strict=True)])
        hyper = Hyper(0.1 / t, 50.0 + t, 1e-3, 0.9, 0.99, 1.0 if t % 2 else math.inf, 1.0 - 0.9**t)
        rows = zip(means, momenta, hess, thetas, noises, strict=True)
        path.step(
            [Step(m, m, g, h, theta.sin(), "reparam", None, z, 0.0, 1.0, 1.0 / t, hyper) for m, g, h, theta, z in rows]
        )
    return torch.cat([*means, *hess, *momenta])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own, of torch.jit, on first import
def test_compiled_agrees_with_the_loop_and_compiles_once() -> None:
    # The small tensors are joined, the large one is cut: both kinds of pieces are there from the start.
    torch.testing.assert_close(run(compiled, 300_001), run(loop, 300_001), rtol=2e-6, atol=2e-6)
    graphs = counters["stats"]["unique_graphs"]
    assert graphs > 0
    torch.testing.assert_close(run(compiled, 500_001), run(loop, 500_001), rtol=2e-6, atol=2e-6)
    assert counters["stats"]["unique_graphs"] == graphs
