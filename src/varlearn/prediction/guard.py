"""Lend a model out and get it back as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import nn


@contextlib.contextmanager
def preserved(model: nn.Module) -> Iterator[Callable[[], None]]:
    """Bring parameters, buffers and train flags back bit for bit on leaving, also after an exception or Ctrl-C.

    PyTorch's global random state comes back too: a DataLoader draws from it on every pass, and evaluating must not
    change the training that follows.

    Yields:
        A function that restores the model within the block.

    >>> net = nn.Linear(1, 1)
    >>> before = net.weight.item()
    >>> with preserved(net):
    ...     _ = nn.init.zeros_(net.weight), net.eval()
    >>> net.weight.item() == before, net.training
    (True, True)
    """
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}.values()
    kept = [(tensor, tensor.detach().clone()) for tensor in tensors]
    flags = [(module, module.training) for module in model.modules()]

    @torch.no_grad()
    def restore() -> None:
        for tensor, value in kept:
            tensor.copy_(value)
        for module, training in flags:
            module.training = training

    with torch.random.fork_rng(devices=_gpus(model)):
        try:
            yield restore
        finally:
            try:
                restore()
            except BaseException:  # a second Ctrl-C must not leave half of a sample behind
                restore()
                raise


@contextlib.contextmanager
def seeded(model: nn.Module, key: int) -> Iterator[None]:
    """Draw from PyTorch's global generators as if freshly seeded with `key`, and put them back afterwards.

    >>> with seeded(nn.Linear(1, 1), key=5):
    ...     first = torch.rand(1)
    >>> with seeded(nn.Linear(1, 1), key=5):
    ...     print(torch.equal(first, torch.rand(1)))
    True
    """
    gpus = _gpus(model)
    with torch.random.fork_rng(devices=gpus):
        # torch.manual_seed would also reach for every backend that is not in use, at a millisecond a call
        for generator in (torch.default_generator, *(torch.cuda.default_generators[gpu] for gpu in gpus)):
            generator.manual_seed(key)
        yield


def _gpus(model: nn.Module) -> list[int]:
    tensors = (*model.parameters(), *model.buffers())
    return sorted({tensor.device.index for tensor in tensors if tensor.device.type == "cuda"})
