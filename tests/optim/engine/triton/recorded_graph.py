"""A CUDA graph without CUDA: what is launched between two points is recorded, and computed again at each replay.

As in a real capture nothing is computed while it is recorded: tensors that exist are set back afterwards. A replay uses
the same memory and the same numbers of the host. Whoever asks a tensor for a number meanwhile gets an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

WAITS = "the host waits for the device while a graph is captured"


class RecordedGraph(TorchDispatchMode):
    """Records operations of PyTorch and launches of kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], Any]] = []
        self.kernels: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError(WAITS)
        out = func(*args, **kwargs)
        returns = func._schema.returns
        if func._schema.is_mutable:
            self.calls.append(partial(func, *args, **kwargs))
        elif all(each.alias_info is None for each in returns):

            def again() -> None:
                made = func(*args, **kwargs)
                for old, new in zip(_tensors(out), _tensors(made), strict=True):
                    old.copy_(new)

            self.calls.append(again)
        return out

    def replay(self) -> None:
        with torch.no_grad():
            for call in self.calls:
                call()


def _tensors(out: Any) -> list[Tensor]:
    return [each for each in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(each, Tensor)]


@contextmanager
def captured(graph: RecordedGraph, existing: Sequence[Tensor]) -> Iterator[None]:
    """Record what the block launches. Tensors that exist already have their values again after it."""
    from varlearn.optim.engine.triton import capturing, launching
    from varlearn.optim.sampling.clip_watch import ClipWatch

    before = [tensor.detach().clone() for tensor in existing]

    def recording(launch: Any) -> Any:
        def record(self: Any, kernel: Any, *args: Any, **kwargs: Any) -> None:
            graph.kernels.append(kernel.__name__)
            with _disable_current_modes():
                launch(self, kernel, *args, **kwargs)
            graph.calls.append(lambda: launch(self, kernel, *args, **kwargs))

        return record

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capturing, "is_capturing", lambda device: True)
        for module in ("stepping", "vadamw", "sampling.blocks"):
            patch.setattr(f"varlearn.optim.{module}.is_capturing", lambda device: True)
        # The host compares gradients in its own memory alone; on an accelerator the device does it.
        patch.setattr(ClipWatch, "_are_as_before", lambda self, seen: False)
        for name in ("run", "run_once"):
            patch.setattr(launching.Launcher, name, recording(getattr(launching.Launcher, name)))
        with graph:
            yield
    with torch.no_grad():
        for tensor, old in zip(existing, before, strict=True):
            tensor.copy_(old)
