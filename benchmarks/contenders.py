"""The optimizers that are compared, and how each is driven through one training step."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter

import varlearn
from varlearn.optim.engine.native import native_engine

REFERENCE = "AdamW fused"
FOREACH_REFERENCE = "AdamW foreach"

# Ordinary settings. They do not matter for the cost, but the numbers must stay finite for hundreds of steps.
_ADAMW: dict[str, Any] = {"lr": 1e-4, "weight_decay": 0.01}
_IVON: dict[str, Any] = {"lr": 1e-3, "ess": 1e6, "hess_init": 0.1, "weight_decay": 1e-4}

Compute = Callable[[], object]


class Contender(NamedTuple):
    """An optimizer in one of its configurations.

    Attributes:
        name: as it stands in the tables.
        build: from parameters to the optimizer.
        drive: one training step: (optimizer, forward and backward) -> None.
        vectors: rough peak memory in parameter-vectors, gradients not counted; decides what fits into a machine.
    """

    name: str
    build: Callable[[Sequence[Parameter]], Any]
    drive: Callable[[Any, Compute], None]
    vectors: float


def plain(optimizer: Any, compute: Compute) -> None:
    """One step of an ordinary optimizer."""
    compute()
    optimizer.step()


def block(optimizer: Any, compute: Compute) -> None:
    """One step with the gradient taken at a sample, as in the paper's loop."""
    with optimizer.sampled_params(train=True):
        compute()
    optimizer.step()


def modes(optimizer: Any, compute: Compute) -> None:
    """The same through `train()`, as trainers do it: the sample stays in the weights until `step()`."""
    optimizer.train()
    compute()
    optimizer.step()


def closure(optimizer: Any, compute: Compute) -> None:
    """The same through `step(closure)`, where the optimizer draws the sample itself."""
    optimizer.step(compute)


def staying(optimizer: Any, compute: Compute) -> None:
    """The same through `train(stay=True)`: the step draws the next sample in its own pass."""
    if not optimizer.is_sampled:
        optimizer.train(stay=True)
    compute()
    optimizer.step()


def staying_closure(optimizer: Any, compute: Compute) -> None:
    """The same with a closure."""
    if not optimizer.is_sampled:
        optimizer.train(stay=True)
    optimizer.step(compute)


def _adamw(**options: Any) -> Callable[[Sequence[Parameter]], Any]:
    return lambda params: torch.optim.AdamW(params, **_ADAMW, **options)


def _varlearn(**options: Any) -> Callable[[Sequence[Parameter]], Any]:
    return lambda params: varlearn.IVON(params, **_IVON, seed=0, **options)


def _vadamw(params: Sequence[Parameter]) -> Any:
    return varlearn.optim.VAdamW(params, **_ADAMW, n=1e6, batch_size=100, seed=0)


def _ivon_opt(params: Sequence[Parameter]) -> Any:
    import ivon

    return ivon.IVON(params, **_IVON)


ALL = (
    Contender("AdamW fused", _adamw(fused=True), plain, 3.1),
    Contender("AdamW foreach", _adamw(foreach=True), plain, 5.0),
    Contender("ivon-opt", _ivon_opt, block, 12.0),
    Contender("varlearn loop", _varlearn(foreach=False, fused=False), block, 6.0),
    Contender("varlearn foreach", _varlearn(foreach=True, fused=False), block, 4.1),
    Contender("varlearn fused", _varlearn(fused=True), block, 4.1),
    Contender("varlearn fused, lean", _varlearn(fused=True, memory="lean"), block, 3.1),
    Contender("varlearn fused, modes", _varlearn(fused=True), modes, 4.1),
    Contender("varlearn fused, closure", _varlearn(fused=True), closure, 4.1),
    Contender("varlearn fused, staying", _varlearn(fused=True), staying, 4.1),
    Contender("varlearn fused, staying closure", _varlearn(fused=True), staying_closure, 4.1),
    Contender("VAdamW", _vadamw, block, 4.1),
    Contender("VAdamW, staying", _vadamw, staying, 4.1),
)


def select(*names: str) -> list[Contender]:
    """Those of the named contenders (all without names) that this machine can run; `left_out` tells of the others."""
    unknown = set(names) - {contender.name for contender in ALL}
    if unknown:
        raise ValueError(f"{sorted(unknown)} must be among {[contender.name for contender in ALL]}; correct the name")
    absent = left_out()
    return [contender for contender in ALL if contender.name not in absent and (not names or contender.name in names)]


def left_out() -> dict[str, str]:
    """Contender -> why it cannot be run here."""
    reasons: dict[str, str] = {}
    if importlib.util.find_spec("ivon") is None:
        reasons["ivon-opt"] = "ivon-opt is not installed; `make setup` installs it"
    if not native_engine.available():
        # It would fall back to foreach, and the table would show that under another name.
        for contender in ALL:
            if contender.name.startswith(("varlearn fused", "VAdamW")):
                reasons[contender.name] = "the native kernel cannot be compiled here; install a C compiler"
    return reasons
