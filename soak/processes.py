"""A training goes on in another process: forked, spawned, or from a fork server.

Each case trains a small network for some steps and hands it to a child process, which trains on. The promise: the child
leaves the same bytes as a training that stayed in one process, and so does the parent, which trains on as well.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from soak.part import Outcome, Part, chance
from soak.threads import ENGINES, WAYS, digest, network, optimizer, train_step
from varlearn import IVON, VAdamW
from varlearn.optim.engine.native import native_engine

BEFORE, AFTER = 4, 6  # steps
LONGEST = 600.0  # seconds that a child may take; a spawned one imports torch first, slowly on a busy machine
METHODS = ("fork", "fork", "fork", "fork", "fork", "fork", "spawn", "forkserver")  # the first takes no time

Trained = tuple[nn.Module, IVON | VAdamW]


def _go_on(trained: Trained, way: str) -> str:
    for number in range(BEFORE, BEFORE + AFTER):
        train_step(*trained, way, number)
    trained[1].eval()
    return digest(*trained)


def _child(pipe: Any, given: Trained | bytes, way: str) -> None:
    """A forked child has the objects themselves, another one unpickles them."""
    torch.set_num_threads(1)  # what a forked process needs: OpenMP's threads stay with the parent
    trained: Trained = pickle.loads(given) if isinstance(given, bytes) else given
    pipe.send(_go_on(trained, way))


def cases(numbers: range, seed: int) -> Iterator[Outcome]:
    """Way of starting, optimizer, engine, memory mode and way of training are random."""
    engines = [name for name in ENGINES if name != "native" or native_engine.available()]
    for number in numbers:
        random = chance(seed, number)
        method, kind = random.choice(METHODS), random.choice(("ivon", "vadamw"))
        engine, memory = random.choice(engines), random.choice(("fast", "lean"))
        way = random.choice(WAYS[:4])
        about = f"number {number}, {method}, {kind}, {engine}, {memory}, {way}"
        fault = _tried(method, kind, engine, memory, way, number)
        yield Outcome(method, not fault, f"{about}: {fault}" if fault else "")


def _tried(method: str, kind: str, engine: str, memory: str, way: str, number: int) -> str:
    trained = []
    for _ in range(2):
        model = network(chance(7, number))
        opt = optimizer(kind, engine, memory, model)
        for step in range(BEFORE):
            train_step(model, opt, way, step)
        trained.append((model, opt))
    wanted = _go_on(trained[0], way)
    context: Any = multiprocessing.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    given: Trained | bytes = trained[1] if method == "fork" else pickle.dumps(trained[1])
    child = context.Process(target=_child, args=(theirs, given, way))
    child.start()
    theirs.close()
    found = f"nothing after {LONGEST:g} s"
    try:
        if ours.poll(LONGEST):
            found = ours.recv()
    except EOFError:
        found = "nothing: it failed"
    child.join(10.0)
    if child.is_alive():
        child.kill()
        child.join()
    if found != wanted:
        return f"the child left {found[:60]}, not {wanted[:12]}"
    return "" if _go_on(trained[1], way) == wanted else "the parent left other bytes"


PART = Part(
    "processes",
    "A training that goes on in a forked, spawned or fork-served process leaves the same bytes, and its parent too",
    "child processes",
    short=40,
    full=400,
    cases=cases,
)
