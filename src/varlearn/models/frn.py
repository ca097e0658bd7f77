"""Filter response normalization with its thresholded linear unit, which the image models use in place of batch norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FilterResponseNorm(nn.Module):
    """Filter response normalization (FRN) followed by a thresholded linear unit (TLU).

    For each image and channel, with the mean over the H x W positions,

        y = gamma * x / sqrt(mean_HW(x^2) + eps) + beta,    output = max(y, tau).

    No statistic crosses the batch and none is kept between calls, so each example has its own loss, whatever the batch,
    and training and evaluation compute the same function. gamma = 1, beta = 0 and tau = 0 at first, each of shape
    (1, C, 1, 1); all three are weights like any others. The arithmetic is at least float32, the output has the input's
    dtype. On a single position (H = W = 1) only the sign of x is left: choose images large enough for the model.

    Args:
        channels: C.
        eps: added to the mean square.

    The mean square of (1, 7) is 25, so (1, 7) becomes (0.2, 1.4); a negative response is cut at tau = 0:

    >>> x = torch.tensor([[[[1.0, 7.0]], [[-1.0, 7.0]]]])
    >>> FilterResponseNorm(2)(x)
    tensor([[[[0.2000, 1.4000]],
             [[0.0000, 1.4000]]]], grad_fn=<AddBackward0>)
    """

    is_activation = True  # for `insert_dropout`

    def __init__(self, channels: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.gamma = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.beta = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.tau = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize images (B, C, H, W), channel by channel."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # a square overflows float16 from 256 on
        # Two phrasings that make the backward pass on a CPU five to ten times as fast: a sum and a division, as the
        # gradient of a mean fills a tensor of its own in another memory format; and relu(y - tau) + tau, as that of a
        # maximum sweeps over the images several times to share out ties.
        mean_square = wide.square().sum(dim=(2, 3), keepdim=True) / (x.shape[2] * x.shape[3])  # (B, C, 1, 1)
        scale = self.gamma * torch.rsqrt(mean_square + self.eps)
        return (torch.relu(wide * scale + (self.beta - self.tau)) + self.tau).to(x.dtype)

    def extra_repr(self) -> str:
        """Show the size where the module is printed."""
        return f"{self.gamma.shape[1]}, eps={self.eps}"
