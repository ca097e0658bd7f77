"""Much of something: 10^6 examples, a log of 10^6 lines, 1,000 checkpoints. Each case has a bound of time and memory.

Every case runs in a process of its own, forked from one that has done nothing. What is prepared for a case is not
measured. Memory is the peak of the process beyond its peak before; time is computing time, so that a busy machine does
not count.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from soak.isolated import isolated
from soak.part import Outcome, Part
from soak.scratch import scratch
from soak.small_runs import left_behind, small_runs, trained
from soak.watch import peak
from varlearn.files.checked_json import Lines, json_line, read_json_lines
from varlearn.posterior import DiagGaussian
from varlearn.prediction import Predictions, predict
from varlearn.report import write_report
from varlearn.train import checkpoint
from varlearn.train.run_folder import RunFolder

EXAMPLES, LINES, CHECKPOINTS = 1_000_000, 1_000_000, 1_000
_BATCH, _FEATURES, _CLASSES = 1_000, 64, 3
_MIB = 2**20
_RUN = "ivon, validated"
Case = tuple[Callable[[], Any], Callable[[Any], str]]  # the check gets what the work returned; "" for nothing wrong


@dataclass(frozen=True)
class Load:
    """One case.

    Attributes:
        kind: its name in the counts.
        size: how much of it.
        seconds: of computing that it may take.
        mib: that it may use.
        prepare: (folder, size) -> what is measured, and then what tells whether it did right.
    """

    kind: str
    size: int
    seconds: float
    mib: float
    prepare: Callable[[Path, int], Case]


class Examples:
    """Batches that are made when they are asked for; all inputs together would take 256 bytes per example."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, self._count, _BATCH):
            size = min(_BATCH, self._count - start)
            generator = torch.Generator().manual_seed(start)
            inputs = torch.rand(size, _FEATURES, generator=generator)
            yield inputs, torch.arange(start, start + size) % _CLASSES


def _predicted(folder: Path, size: int) -> Case:
    del folder
    model = nn.Linear(_FEATURES, _CLASSES)
    mean = {name: value.detach().clone() for name, value in model.named_parameters()}
    posterior = DiagGaussian(mean, {name: torch.ones_like(value) for name, value in mean.items()}, ess=100.0)
    predict(model, posterior, Examples(_BATCH), samples=4, progress=False)

    def check(found: Predictions) -> str:
        shape = tuple(found.log_probs.shape)
        return "" if shape == (size, _CLASSES) else f"the predictions have shape {shape}"

    return lambda: predict(model, posterior, Examples(size), samples=4, progress=False), check


def _read_log(folder: Path, size: int) -> Case:
    path = folder / "log.jsonl"
    write_log(path, size)

    def check(found: Lines) -> str:
        return "" if len(found.records) == size and not found.damaged else f"{len(found.records)} records were read"

    return lambda: read_json_lines(path), check


def _reported(folder: Path, size: int) -> Case:
    out = folder / "run"
    trained(small_runs()[_RUN], out)()
    write_log(RunFolder(out).log, size)

    def check(_: object) -> str:
        written = sum(path.stat().st_size for path in (folder / "report").rglob("*") if path.is_file())
        return "" if written < 4 * _MIB else f"the report has {written / _MIB:.0f} MiB"

    return lambda: write_report(out, folder / "report"), check


def _resumed_with_log(folder: Path, size: int) -> Case:
    out = folder / "run"
    trained(small_runs()[_RUN], out)()
    newest, before = reversed(RunFolder(out).checkpoints.paths())
    newest.unlink()
    write_log(RunFolder(out).log, size)
    state = checkpoint.read(before) | {"log_bytes": RunFolder(out).log.stat().st_size}
    checkpoint.write(before, state)

    def check(_: object) -> str:
        found = read_json_lines(RunFolder(out).log)
        kept = len(found.records) > size and not found.damaged
        return "" if kept else f"the log has {len(found.records)} records, damaged are {found.damaged[:3]}"

    return trained(small_runs()[_RUN], out), check


def _many_checkpoints(damaged: Callable[[int], int]) -> Callable[[Path, int], Case]:
    """The last checkpoint but one of a run, under the numbers of `size` steps; the newest of them are damaged."""

    def prepare(folder: Path, size: int) -> Case:
        out = folder / "run"
        run = small_runs()[_RUN]
        run = replace(run, train=replace(run.train, epochs=size // 4))  # a step for each checkpoint
        work = trained(run, out)
        work()
        expected = left_behind(out)
        older, newest = RunFolder(out).checkpoints.paths()
        content, last = older.read_bytes(), int(older.stem.removeprefix("step-"))
        newest.unlink()
        for age in range(size):
            path = older.with_name(f"step-{last - age:08d}.safetensors")
            path.write_bytes(content[:-1] if age < damaged(size) else content)

        def check(_: object) -> str:
            found = left_behind(out)
            names = [name for name in expected if name != str(older.relative_to(out))]
            wrong = [name for name in names if found.get(name) != expected[name]]
            return f"after resuming, other bytes in {', '.join(wrong)}" if wrong else ""

        return work, check

    return prepare


def write_log(path: Path, lines: int) -> None:
    """A log as training writes it, without its flush after each line."""
    line = ""
    with open(path, "w", encoding="utf-8") as file:
        for step in range(1, lines + 1):
            record = {"step": step, "epoch": step / 100, "loss": 1 / step, "lr": 0.1, "skipped": 0}
            line = json_line(record | {"ivon": {"std_mean": 0.01, "std_max": 0.1}}, line)
            file.write(line)


LOADS = (
    Load("predict", EXAMPLES, 60.0, 128.0, _predicted),
    Load("read a log", LINES, 60.0, 1024.0, _read_log),
    Load("report a log", LINES, 120.0, 2048.0, _reported),
    Load("resume with a log", LINES, 120.0, 1024.0, _resumed_with_log),
    Load("resume, 1,000 checkpoints", CHECKPOINTS, 10.0, 128.0, _many_checkpoints(lambda size: 0)),
    Load("3 of them damaged", CHECKPOINTS, 10.0, 128.0, _many_checkpoints(lambda size: 3)),
    Load("999 of them damaged", CHECKPOINTS, 10.0, 128.0, _many_checkpoints(lambda size: size - 1)),
)


def measured(load: Load, size: int) -> Outcome:
    """Prepare a case of some size and measure it."""
    with scratch() as folder, contextlib.redirect_stderr(io.StringIO()):
        work, check = load.prepare(folder, size)
        before, began = peak(), time.process_time()
        found = work()
        seconds, mib = time.process_time() - began, max(0.0, peak() - before)
        fault = check(found)
    if not fault and (seconds > load.seconds or mib > load.mib):
        fault = f"took {seconds:.1f} s of at most {load.seconds:g}, {mib:.0f} MiB of at most {load.mib:g}"
    numbers = {f"s ({load.kind})": seconds, f"MiB ({load.kind})": mib}
    return Outcome(load.kind, not fault, f"{load.kind}: {fault}" if fault else "", numbers)


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """Each number is a load; nothing is random."""
    for number in range(numbers.start, min(numbers.stop, len(LOADS))):
        yield from isolated(_one, longest=600.0)(range(number, number + 1), seed)


def _one(numbers: range, seed: int) -> Iterator[Outcome]:
    del seed
    for load in LOADS[numbers.start : numbers.stop]:
        yield measured(load, load.size)


PART = Part(
    name="load",
    promise="10^6 examples, a log of 10^6 lines, 1,000 checkpoints: right, within bounds of time and memory",
    unit="loads",
    short=len(LOADS),
    full=len(LOADS),
    cases=cases,
)
