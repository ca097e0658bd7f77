"""A search within ranges of settings: Optuna proposes the next combination from the results so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import optuna

Number = int | float


def bounds(word: str) -> tuple[Number, Number] | None:
    """The two ends of a range, or None for a plain value.

    >>> bounds("0.01:1"), bounds("16:64"), bounds("0.1")
    ((0.01, 1.0), (16, 64), None)
    """
    low, colon, high = word.partition(":")
    if not colon:
        return None
    for convert in (int, float):
        try:
            ends = convert(low), convert(high)
        except ValueError:
            continue
        if not (all(math.isfinite(end) for end in ends) and ends[0] < ends[1]):
            raise ValueError(f"the range {word} must have two finite ends, the lower one first; e.g. 0.01:1")
        return ends
    raise ValueError(f"the range {word} must have a number on both sides of the colon; e.g. 0.01:1")


def corners(values: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The extreme values of each setting: what can be checked before the search proposes anything.

    >>> corners({"optim.lr": ["0.01:1"], "optim.name": ["ivon", "sgd"]})
    {'optim.lr': ['0.01', '1'], 'optim.name': ['ivon', 'sgd']}
    """
    return {name: words[0].split(":") if _is_range(words) else list(words) for name, words in values.items()}


class RangeSearch:
    """Proposes combinations of settings, one after the other, by Optuna's tree-structured Parzen estimator.

    The same values, seed and results give the same proposals, so an interrupted search continues by telling it again
    the results of the runs that are finished.

    Args:
        values: setting -> its words: either one range `low:high`, or values to choose from. A range whose ends are
            positive and a factor of 10 or more apart is searched on a logarithmic scale. Two whole numbers give
            whole numbers.
        seed: of the proposals.

    >>> import pytest
    >>> _ = pytest.importorskip("optuna")
    >>> search = RangeSearch({"optim.lr": ["0.01:1"], "optim.name": ["ivon", "sgd"]}, seed=0)
    >>> words = search.propose()
    >>> 0.01 <= float(words["optim.lr"]) <= 1, words["optim.name"] in ("ivon", "sgd")
    (True, True)
    >>> search.learn(0.3)
    """

    def __init__(self, values: Mapping[str, Sequence[str]], seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._values = dict(values)
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        self._trial: optuna.Trial | None = None

    def propose(self) -> dict[str, str]:
        """The next combination, as words of the command line."""
        self._trial = self._study.ask()
        return {name: _suggested(self._trial, name, words) for name, words in self._values.items()}

    def learn(self, nll: float | None) -> None:
        """Tell the result of the last proposal; None or a number that is not finite for a run that failed."""
        import optuna

        assert self._trial is not None, "call propose() first"
        failed = nll is None or not math.isfinite(nll)
        if failed:
            self._study.tell(self._trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(self._trial, nll)


def _is_range(words: Sequence[str]) -> bool:
    found = [word for word in words if bounds(word) is not None]
    if found and len(words) > 1:
        raise ValueError(f"{','.join(words)} mixes a range with values; give one range, or values alone")
    return bool(found)


def _suggested(trial: Any, name: str, words: Sequence[str]) -> str:
    if not _is_range(words):
        return trial.suggest_categorical(name, list(words))
    ends = bounds(words[0])
    assert ends is not None
    low, high = ends
    log = low > 0 and high / low >= 10
    if isinstance(low, int) and isinstance(high, int):
        return str(trial.suggest_int(name, low, high, log=log))
    # Three digits keep folder names short; a rounded number may leave the range by a rounding error only.
    return repr(min(max(float(f"{trial.suggest_float(name, low, high, log=log):.3g}"), low), high))
