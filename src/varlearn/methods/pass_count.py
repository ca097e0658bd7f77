"""Numbers of the backward passes of a run."""

from __future__ import annotations


class PassCount:
    """Numbers the passes of a run from its step, so that a resumed run goes on with the numbers that it would have had.

    >>> passes = PassCount()
    >>> passes.next(step=1) == passes.next(step=1), passes.next(step=2) == PassCount().next(step=2)
    (False, True)
    """

    _PER_STEP = 1 << 20

    def __init__(self) -> None:
        self._step, self._count = -1, 0

    def next(self, step: int) -> int:
        """The number of the next pass in this step."""
        self._count = self._count + 1 if step == self._step else 0
        self._step = step
        return step * self._PER_STEP + self._count
