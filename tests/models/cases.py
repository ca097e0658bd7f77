"""The models, one row each: the tests of `test_contract.py` run over all of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from varlearn import models


class Case(NamedTuple):
    """How to build a model as published and in a size for tests, what it takes and what it has.

    Attributes:
        build: the public function.
        parameters: of `build()`, from the publication or added up by hand.
        small: arguments that make it cheap to run.
        inputs: from a batch size to inputs, drawn from the global generator.
        outputs: shape of the output without the batch.
        image: whether the inputs are images.
    """

    build: Callable[..., nn.Module]
    parameters: int
    small: dict[str, Any]
    inputs: Callable[[int], Tensor]
    outputs: tuple[int, ...]
    image: bool = True


def _images(size: int, channels: int = 3) -> Callable[[int], Tensor]:
    return lambda batch: torch.randn(batch, channels, size, size)


def _tokens(vocab: int, length: int) -> Callable[[int], Tensor]:
    return lambda batch: torch.randint(1, vocab, (batch, length))


_GPT2 = {"vocab": 50, "context": 12}
_GRU = {"classes": 3, "vocab": 30, "embedding": 8, "hidden": 16}

CASES: dict[str, Case] = {
    "resnet20": Case(models.resnet20, 274_042, {}, _images(16), (10,)),
    "resnet20_swish": Case(models.resnet20_swish, 274_042, {}, _images(16), (10,)),
    "resnet18": Case(models.resnet18, 11_178_762, {}, _images(16), (10,)),
    "preresnet110": Case(models.preresnet110, 3_899_146, {}, _images(16), (10,)),
    "densenet121": Case(models.densenet121, 1_016_278, {}, _images(16), (10,)),
    "resnet50": Case(models.resnet50, 25_583_592, {"classes": 10}, _images(64), (10,)),
    "mlp": Case(
        lambda: models.mlp(13), 13 * 50 + 50 + 50 * 2 + 2, {}, lambda batch: torch.randn(batch, 13), (2,), False
    ),
    "small_cnn": Case(models.small_cnn, 160 + 4_640 + 32_832 + 650, {}, _images(8, 1), (10,)),
    "frn_cnn": Case(models.frn_cnn, (896 + 96) + (18_496 + 192) + (73_856 + 384) + 20_490, {}, _images(32), (10,)),
    "lenet": Case(models.lenet, 456 + 2_416 + 48_120 + 10_164 + 595, {}, _images(28), (7,)),
    "alexnet": Case(
        models.alexnet,
        (1_792 + 73_856) + (131_328 + 131_200 + 32_832) + (1_048_832 + 65_792 + 2_570),
        {},
        _images(32),
        (10,),
    ),
    "gru": Case(models.gru, 1_280_000 + (296_448 + 394_752) + 1_028, _GRU, _tokens(30, 9), (3,), False),
    "gpt2_125m": Case(models.gpt2_125m, 124_373_760, {}, _tokens(50, 12), (12, 50304), False),
    "gpt2_355m": Case(models.gpt2_355m, 354_599_936, {}, _tokens(50, 12), (12, 50304), False),
    "gpt2_773m": Case(models.gpt2_773m, 773_582_080, {}, _tokens(50, 12), (12, 50304), False),
    "gpt2_10m": Case(models.gpt2_10m, 9_999_680, _GPT2, _tokens(50, 12), (12, 50), False),
    "gpt2_3m": Case(models.gpt2_3m, 3_279_104, _GPT2, _tokens(50, 12), (12, 50), False),
    "gpt2_tiny": Case(models.gpt2_tiny, 34_976, _GPT2, _tokens(50, 12), (12, 50), False),
}
FROM_FILES = {"pretrained"}  # built from a folder, not from arguments: tests/models/test_pretrained.py
TOO_LARGE = {"gpt2_125m", "gpt2_355m", "gpt2_773m"}  # to be run here; the same class as the small ones
RUNNABLE = [name for name in CASES if name not in TOO_LARGE]
IMAGES = [name for name in RUNNABLE if CASES[name].image]
