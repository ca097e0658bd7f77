"""Two ranks: the time and the traffic of a training step of IVON beside AdamW's, under DDP and FSDP2.

    python -m benchmarks.dist            # a few minutes; figures go to benchmarks/results/dist.json
    python -m benchmarks.dist --quick    # seconds, to see that everything runs

Both ranks run on this machine over gloo, so the traffic is real and the network is not: what is compared is the work
around it. Traffic is what a rank writes to its sockets, counted by the kernel.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import varlearn
from benchmarks import results
from benchmarks.contenders import block, plain
from benchmarks.environment import describe
from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.run import QUICK_FOLDER
from benchmarks.tables import Column, as_text, by_case, cells
from benchmarks.timing import Budget, Timings, take_turns

RANKS = 2
REFERENCE = "AdamW fused"
_BATCH = 16
_COUNTED = 3  # steps whose traffic is counted
_TIMEOUT = timedelta(seconds=120)
_ADAMW: dict[str, Any] = {"lr": 1e-4, "weight_decay": 0.01, "fused": True}
_IVON: dict[str, Any] = {"lr": 1e-3, "ess": 1e6, "hess_init": 0.1, "weight_decay": 1e-4, "seed": 0}
_SETUPS: dict[str, Mapping[str, dict[str, Any] | None]] = {
    "DDP": {
        REFERENCE: None,
        "IVON, independent noise": {"noise": "independent"},
        "IVON, shared noise": {"noise": "shared"},
    },
    "FSDP2": {REFERENCE: None, "IVON": {}},
}


def measure(quick: bool) -> list[Figure]:
    """All setups, in processes that are started once."""
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_rank, args=(folder, quick), nprocs=RANKS, start_method="spawn")
        return json.loads((Path(folder) / "figures.json").read_text())


def _rank(rank: int, folder: str, quick: bool) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS, timeout=_TIMEOUT)
    try:
        figures = [figure for setup in _SETUPS for figure in _case(setup, quick)]
        if rank == 0:
            (Path(folder) / "figures.json").write_text(json.dumps(figures))
    finally:
        dist.destroy_process_group()


def _case(setup: str, quick: bool) -> list[Figure]:
    width = 64 if quick else 1024
    steps = {name: _training(setup, width, options) for name, options in _SETUPS[setup].items()}
    # A fixed number of rounds: ranks that stop at different times would wait for each other in vain.
    timings = take_turns(steps, Budget(rounds=2 if quick else 20, seconds=math.inf, warmup=2))
    count = sum(param.numel() for param in _model(width).parameters())
    case = f"{setup}, {count / 1e6:.1f}M parameters, {RANKS} ranks, batch {_BATCH} each"
    return [_figure(case, name, count, timings, _sent_by(step)) for name, step in steps.items()]


def _model(width: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def _training(setup: str, width: int, options: dict[str, Any] | None) -> Callable[[], None]:
    net: nn.Module = _model(width)
    if setup == "DDP":
        net = nn.parallel.DistributedDataParallel(net)
    else:
        from torch.distributed.fsdp import fully_shard

        for layer in net.children():
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(net)
    optimizer: Any
    if options is None:
        optimizer, drive = torch.optim.AdamW(net.parameters(), **_ADAMW), plain
    else:
        optimizer, drive = varlearn.IVON(net.parameters(), **_IVON, **options), block
    inputs, targets = torch.randn(_BATCH, width), torch.randint(10, (_BATCH,))

    def compute() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), targets).backward()

    return lambda: drive(optimizer, compute)


def _sent_by(step: Callable[[], None]) -> float:
    """Bytes that this rank writes in one step; 0 where the system does not say."""
    before = _written()
    for _ in range(_COUNTED):
        step()
    dist.barrier()
    return (_written() - before) / _COUNTED


def _written() -> int:
    counts = Path("/proc/self/io")
    if not counts.exists():
        return 0
    return next(int(line.split()[1]) for line in counts.read_text().splitlines() if line.startswith("wchar"))


def _figure(case: str, name: str, count: int, timings: Timings, sent: float) -> Figure:
    low, high = timings.quartiles(name, REFERENCE)
    return {
        "case": case,
        "contender": name,
        "parameters": count,
        "rounds": timings.rounds,
        "ms_median": timings.median_ms(name),
        "over_fused": timings.ratio(name, REFERENCE),
        "over_fused_low": low,
        "over_fused_high": high,
        "bytes_per_parameter": sent / count,
    }


PART = Part(
    name="dist",
    title="training steps on two ranks",
    columns=(
        Column("contender", "optimizer"),
        Column("ms_median", "ms, median", ".3g"),
        Column("over_fused", "x AdamW fused", is_main=True),
        Column("over_fused_low", "lower quartile"),
        Column("over_fused_high", "upper quartile"),
        Column("bytes_per_parameter", "bytes sent per parameter"),
        Column("rounds", "rounds", "d"),
    ),
    measure=measure,
)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the tables, keep the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dist", description="Training steps on two ranks.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and few rounds, to see that everything runs")
    parser.add_argument("--out", type=Path, help="folder for the JSON file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    environment = describe(f"python -m benchmarks.dist{' --quick' if options.quick else ''}")
    document = results.document(PART.name, measure(options.quick), environment, options.quick)
    folder = options.out or (QUICK_FOLDER if options.quick else results.FOLDER)
    path = results.write(folder, document)
    for case, figures in by_case(document["figures"]).items():
        print(f"\n{case}\n{as_text(cells(figures, PART.columns))}")
    print(f"\nkept in {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
