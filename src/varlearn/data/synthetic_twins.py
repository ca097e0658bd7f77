"""A synthetic twin of every data set: the same shapes, dtypes and classes, learnable, made without a file.

What the classes look like depends on the name alone, the examples on the seed too: two seeds give a training and a test
set of one task.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from varlearn.data.examples import Examples
from varlearn.data.facts import CORPORA, IMAGES, TABLES, TEXTS
from varlearn.data.imageset import ImageSet
from varlearn.data.seeds import generator

_VOCAB = 10_000
_LETTERS = b"etaoin shrdlu\n"


def synthetic(name: str, n: int, seed: int = 0) -> Examples:
    """The twin of a data set.

    Args:
        name: as `load` knows it.
        n: number of examples; of tokens, for language modelling.
        seed: decides the examples, not the task.

    >>> twin = synthetic("cifar10", 20)
    >>> twin.inputs.shape, twin.inputs.dtype, len(twin.classes)
    (torch.Size([20, 3, 32, 32]), torch.uint8, 10)
    """
    if n < 1:
        raise ValueError(f"n={n} must be >= 1")
    task, source = generator("twin", name), generator("twin", name, seed)
    if name in IMAGES:
        return _images(IMAGES[name], n, task, source)
    if name in TEXTS:
        return _texts(TEXTS[name], n, task, source)
    if name in CORPORA:
        return _corpus(n, task, source)
    if name in TABLES:
        return _table(TABLES[name], n, task, source)
    raise ValueError(f"{name!r} has no twin; known are {', '.join(sorted([*IMAGES, *TEXTS, *CORPORA, *TABLES]))}")


def _images(facts: ImageSet, n: int, task: torch.Generator, source: torch.Generator) -> Examples:
    """Each class has its own blurred pattern; each image is its class's pattern in noise."""
    channels, height, width = facts.shape
    coarse = torch.rand(len(facts.classes), channels, 4, 4, generator=task)
    patterns = F.interpolate(coarse, size=(height, width), mode="bilinear")
    targets = torch.randint(len(facts.classes), (n,), generator=source)
    noise = torch.randn(n, *facts.shape, generator=source)
    pixels = patterns[targets].add(noise, alpha=0.15).mul(255).round().clamp(0, 255)
    return Examples(pixels.to(torch.uint8), targets, facts.classes, "image", facts.mean, facts.std, mirror=facts.mirror)


def _texts(classes: tuple[str, ...], n: int, task: torch.Generator, source: torch.Generator) -> Examples:
    """Each class has its own 20 words, which are every second word of its texts. Without classes, a score 0 .. 5."""
    groups = len(classes) or 6
    own = torch.randint(3, _VOCAB, (groups, 20), generator=task)
    labels = torch.randint(groups, (n,), generator=source)
    lengths = torch.randint(8, 33, (n, 1), generator=source)
    any_word = torch.randint(3, _VOCAB, (n, 32), generator=source)
    own_word = own[labels].gather(1, torch.randint(20, (n, 32), generator=source))
    tokens = torch.where(torch.rand(n, 32, generator=source) < 0.5, own_word, any_word)
    tokens = tokens.masked_fill(torch.arange(32) >= lengths, 0)
    return Examples(tokens, labels if classes else labels.float(), classes, "text", vocab=_VOCAB)


def _corpus(n: int, task: torch.Generator, source: torch.Generator) -> Examples:
    """Bytes of a Markov chain over a few letters: each letter is followed by one of three."""
    letters = torch.tensor(list(_LETTERS), dtype=torch.uint8)
    followers = torch.randint(len(letters), (len(letters), 3), generator=task).tolist()
    choices = torch.randint(3, (n,), generator=source).tolist()
    state, states = 0, []
    for choice in choices:
        state = followers[state][choice]
        states.append(state)
    return Examples(letters[states], torch.empty(0, dtype=torch.long), (), "tokens", vocab=256)


def _table(columns: int, n: int, task: torch.Generator, source: torch.Generator) -> Examples:
    """A smooth function of standard normal columns, with noise."""
    slope, bend = torch.randn(2, columns, generator=task) / columns**0.5
    inputs = torch.randn(n, columns, generator=source)
    noise: Tensor = torch.randn(n, generator=source) * 0.1
    targets = inputs @ slope + torch.sin(2 * inputs @ bend) + noise
    return Examples(inputs, targets, (), "table", (0.0,) * columns, (1.0,) * columns)
