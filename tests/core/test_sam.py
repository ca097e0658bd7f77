"""The rule of SAM: the step is PyTorch's SGD."""

import torch
from torch import nn

from varlearn.core import sam


def test_the_step_is_that_of_sgd() -> None:
    weight = nn.Parameter(torch.randn(7, dtype=torch.float64))
    sgd = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.05)
    values = weight.detach().clone(), torch.zeros(7, dtype=torch.float64)
    for _ in range(10):
        weight.grad = torch.randn(7, dtype=torch.float64)
        sgd.step()
        values = sam.step(values, weight.grad, sam.Hyper(0.1, 0.05, 0.9))
    torch.testing.assert_close(values[0], weight.detach(), rtol=1e-12, atol=1e-12)
