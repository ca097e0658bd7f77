"""What the optimizers are given to work on: lists of tensors, and models with their data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import cross_entropy

from varlearn.models import gpt2_10m, gpt2_tiny, resnet20

Shapes = tuple[tuple[int, ...], ...]


class Tensors(NamedTuple):
    """Parameters without a model: for figures of the optimizer alone."""

    name: str
    shapes: Shapes

    @property
    def count(self) -> int:
        """Number of parameters."""
        return sum(torch.Size(shape).numel() for shape in self.shapes)

    def params(self, grads: Sequence[Tensor]) -> list[Parameter]:
        """Fresh parameters with these gradients. Contenders may share gradients: one sample's are read, not written."""
        params = [Parameter(torch.empty(shape).uniform_(-0.1, 0.1)) for shape in self.shapes]
        assign(params, grads)
        return params

    def grads(self) -> list[Tensor]:
        """Gradients of the size that late training has."""
        return [torch.empty(shape).uniform_(-1e-3, 1e-3) for shape in self.shapes]


def assign(params: Sequence[Parameter], grads: Sequence[Tensor]) -> None:
    """What backward would leave in `p.grad`."""
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad


def gpt_shapes(width: int, layers: int, vocab: int, context: int = 1024) -> Shapes:
    """A decoder without biases: embeddings, then norm, attention, norm and feedforward matrices in each layer."""
    layer = ((width,), (3 * width, width), (width, width), (width,), (4 * width, width), (width, 4 * width))
    return ((vocab, width), (context, width), *(layer * layers), (width,))


def resnet20_shapes() -> Shapes:
    """ResNet-20 with FRN at its sparsest: no biases in convolutions, no weights in shortcuts; 78 small tensors."""
    convs = [(3, 16), *[(16, 16)] * 6, (16, 32), *[(32, 32)] * 5, (32, 64), *[(64, 64)] * 5]
    shapes: list[tuple[int, ...]] = []
    for inputs, outputs in convs:
        shapes += [(outputs, inputs, 3, 3), *[(1, outputs, 1, 1)] * 3]
    return (*shapes, (10, 64), (10,))


GPT_37M = Tensors("GPT-like, 37M", gpt_shapes(width=384, layers=10, vocab=50257))
GPT_3M = Tensors("GPT-like, 3M", gpt_shapes(width=128, layers=8, vocab=10000))
GPT_SMALL = Tensors("GPT-like, 0.1M", gpt_shapes(width=32, layers=4, vocab=1000))
RESNET20 = Tensors("ResNet-20, 78 tensors", resnet20_shapes())
MANY = Tensors("27M in 7,800 tensors", resnet20_shapes() * 100)

BY_SIZE = (
    Tensors("1M", gpt_shapes(width=64, layers=6, vocab=10000)),
    Tensors("3M", gpt_shapes(width=128, layers=8, vocab=10000)),
    Tensors("10M", gpt_shapes(width=256, layers=6, vocab=20000)),
    Tensors("30M", gpt_shapes(width=384, layers=6, vocab=50257)),
    Tensors("100M", gpt_shapes(width=768, layers=9, vocab=50257)),
    Tensors("300M", gpt_shapes(width=1024, layers=20, vocab=50257)),
)
BY_SIZE_SMALL = (
    Tensors("0.006M", gpt_shapes(width=8, layers=2, vocab=500, context=64)),
    Tensors("0.1M", gpt_shapes(width=32, layers=4, vocab=1000)),
)


class RealGradients(NamedTuple):
    """The parameters of a model with the gradients of one backward pass, strides and all."""

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]

    @property
    def count(self) -> int:
        """Number of parameters."""
        return sum(param.numel() for param in self.build().parameters())

    def grads(self) -> list[Tensor]:
        """Gradients as backward leaves them."""
        model = self.build()
        loss(model, *self.batch()).backward()
        return [param.grad for param in model.parameters() if param.grad is not None]

    def params(self, grads: Sequence[Tensor]) -> list[Parameter]:
        """Parameters of a fresh model with these gradients."""
        params = list(self.build().parameters())
        assign(params, grads)
        return params


class Task(NamedTuple):
    """A model and a batch: for figures of whole training steps.

    Attributes:
        name: as it stands in the tables.
        build: makes the model.
        batch: makes inputs and targets.
    """

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]


def loss(model: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over examples, or over tokens."""
    logits = model(inputs)
    return cross_entropy(logits.flatten(0, -2), targets.flatten())


def tokens(sequences: int, length: int, vocab: int = 256) -> tuple[Tensor, Tensor]:
    """Random text."""
    return torch.randint(vocab, (sequences, length)), torch.randint(vocab, (sequences, length))


def images(count: int, side: int = 32) -> tuple[Tensor, Tensor]:
    """Random colour images in channels_last, of ten classes."""
    pixels = torch.randn(count, 3, side, side).to(memory_format=torch.channels_last)
    return pixels, torch.randint(10, (count,))


RESNET20_REAL = RealGradients("ResNet-20, 107 tensors, gradients of backward", resnet20, lambda: images(4))
GPT_STEP = Task("GPT-2 of 10M, 8 x 256 tokens", gpt2_10m, lambda: tokens(8, 256))
GPT_STEP_SMALL = Task("GPT-2 of 0.03M, 2 x 16 tokens", gpt2_tiny, lambda: tokens(2, 16))
RESNET_STEP = Task("ResNet-20, batch 50", resnet20, lambda: images(50))
RESNET_STEP_SMALL = Task("ResNet-20, batch 2", resnet20, lambda: images(2, side=8))
