"""Ranks tell each other where they are: one seed for all before the first sample, the same place at every step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from varlearn.core.noise import fold_in

_SEEDS = 2**64  # noise takes a seed modulo this
_HALF = 2**32  # half of a seed fits into an int64 on every backend
_EXACT = 2**52  # integers below it are exact in float64


def world_size() -> int:
    """The number of processes that train together; 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process among them; 0 without a process group."""
    return dist.get_rank() if world_size() > 1 else 0


class Place(NamedTuple):
    """Where a rank is in training; equal on all ranks that go together.

    Attributes:
        draws: number of its next sample.
        step: step count of its first parameter.
        seed: identifies the seeds of the groups whose noise all ranks share; exact in float64.
    """

    draws: int
    step: int
    seed: int


class RankReport(NamedTuple):
    """What a rank tells the others at `step()`.

    Attributes:
        draws: see `Place`; -1 where its inputs are used up (`torch.distributed.algorithms.Join`).
        step: see `Place`.
        seed: see `Place`.
        samples: how many it has for this step.
        local: fingerprint of some of the gradients that backward left on this rank, before any averaging.
        captured: fingerprint of the gradients when the last block closed.
        now: fingerprint of the gradients as `step()` finds them.
    """

    draws: float = -1.0
    step: float = 0.0
    seed: float = 0.0
    samples: float = 0.0
    local: float | Tensor = 0.0
    captured: float | Tensor = 0.0
    now: float | Tensor = 0.0


def seeds_of(groups: Iterable[dict[str, Any]]) -> int:
    """One number below 2^52 for the seeds of these groups.

    >>> seeds_of([{"seed": 1}, {"seed": 2}]) == seeds_of([{"seed": 2}, {"seed": 1}])
    False
    """
    key = 0
    for group in groups:
        key = fold_in(key, group["seed"])
    return key % _EXACT


def agree_on_seeds(defaults: dict[str, Any], groups: list[dict[str, Any]], device: torch.device) -> None:
    """Give all ranks the seeds of rank 0: in the groups, and in the defaults for groups that are added later.

    Raises:
        RuntimeError: on all ranks, where they have drawn different numbers of samples.
    """
    holders = [defaults, *groups]
    halves = [half for holder in holders for half in divmod(holder["seed"] % _SEEDS, _HALF)]
    row = torch.tensor([*halves, *(group["draws"] for group in groups)], device=device)
    ranks = _gather(row, "the first training sample")
    draws = [numbers[len(halves)] for numbers in ranks]
    if any(numbers[len(halves) :] != ranks[0][len(halves) :] for numbers in ranks):
        raise RuntimeError(
            f"the ranks are not at the same step: they have drawn {draws} samples; "
            "load the same checkpoint on every rank"
        )
    for holder, high, low in zip(holders, ranks[0][0::2], ranks[0][1::2], strict=False):
        agreed = int(high) * _HALF + int(low)
        if holder["seed"] % _SEEDS != agreed:
            holder["seed"] = agreed


def exchange(report: RankReport, device: torch.device) -> list[RankReport]:
    """The reports of all ranks that have inputs."""
    numbers = [0.0 if isinstance(value, Tensor) else value for value in report]
    mine = torch.tensor(numbers, dtype=torch.float64, device="cpu").to(device, non_blocking=True)
    for index, value in enumerate(report):
        if isinstance(value, Tensor):
            mine[index] = value
    return [found for found in (RankReport(*numbers) for numbers in _gather(mine, "step()")) if found.draws >= 0.0]


def _gather(mine: Tensor, where: str) -> list[list[float]]:
    """The numbers of all ranks. The time-out of the process group ends the wait for a rank that does not answer."""
    ranks = [torch.zeros_like(mine) for _ in range(world_size())]
    try:
        dist.all_gather(ranks, mine)
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {rank()} waited in {where} for the other ranks, which did not come ({error}); every rank must take "
            "the same steps. Where some have fewer batches, train in `with Join([model, optimizer]):` of "
            "torch.distributed.algorithms"
        ) from error
    return torch.stack(ranks).tolist()


def refuse_different(reports: list[RankReport]) -> None:
    """Raise, on all ranks alike, where the ranks are not at the same step with the same gradients."""
    places = [(int(report.draws), int(report.samples)) for report in reports]
    steps = [int(report.step) for report in reports]
    if len(set(places)) > 1 or len(set(steps)) > 1:
        raise RuntimeError(
            f"the ranks are not at the same step: (first draw, samples) are {places}, step counts {steps}; every rank "
            "must take the same number of samples before each step(), and load the same checkpoint"
        )
    if len({report.seed for report in reports}) > 1:
        raise RuntimeError(
            "the ranks have not the same seed, though their noise is shared; load the same checkpoint on every rank, "
            "and change group['seed'] on all ranks alike"
        )
    sums = [float(report.now) for report in reports]
    if any(value != sums[0] for value in sums if value == value):
        raise RuntimeError(
            f"the gradients differ between ranks (sums of asinh: {sums}); wrap the model in DistributedDataParallel, "
            "let the last backward before step() synchronize, or average p.grad yourself; sync=True does not average"
        )
