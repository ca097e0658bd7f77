"""A sample comes out of the weights, and what it was away from the mean stays behind.

Making the noise a second time is most of what a step costs without a kernel. While a sample is in the weights the mean
is in a copy; when it goes, the copy can as well hold theta - m, and `step()` needs no noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_PIECE = 1 << 17  # elements, of which the difference is in memory for a moment


class Swap:
    """Parameters that hold a sample, and copies that hold their means, until `run()`.

    >>> param, copy = torch.tensor([1.5, 2.0]), torch.tensor([1.0, 4.0])
    >>> swap = Swap([(param, copy)])
    >>> swap.run()
    >>> param, copy, swap.is_whole
    (tensor([1., 4.]), tensor([ 0.5000, -2.0000]), True)
    """

    def __init__(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._pieces = _pieces(pairs)
        self._was_run = False
        self.is_whole = False

    def run(self) -> None:
        """Put the means back, and theta - m into the copies. Call it again if it is interrupted.

        Then the means are right, but not all of the differences are: `is_whole` stays False.
        """
        is_first, self._was_run = not self._was_run, True
        while self._pieces:
            params, copies = self._pieces[-1]
            deviations = torch._foreach_sub(params, copies)
            torch._foreach_copy_(params, copies)
            self._pieces.pop()  # from here on the copies are not needed
            torch._foreach_copy_(copies, deviations)
        self.is_whole = is_first or self.is_whole


def _pieces(pairs: Sequence[tuple[Tensor, Tensor]]) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Pairs of dense tensors, small ones together, and large ones as flat views of their parts."""
    pieces: list[tuple[list[Tensor], list[Tensor]]] = []
    room = 0
    for param, copy in pairs:
        size = param.numel()
        if size > _PIECE:
            parts = zip(_flat(param).split(_PIECE), _flat(copy).split(_PIECE), strict=True)
            pieces += [([part], [kept]) for part, kept in parts]
            room = 0
            continue
        if size > room or not pieces:
            pieces.append(([], []))
            room = _PIECE
        room -= size
        pieces[-1][0].append(param)
        pieces[-1][1].append(copy)
    return pieces


def _flat(tensor: Tensor) -> Tensor:
    return tensor.detach().as_strided((tensor.numel(),), (1,))
