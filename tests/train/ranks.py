"""Runs of two processes each, as `torchrun` would start them, forked from this one, which has imported everything.

    python -m tests.train.ranks FOLDER

Reads `scenarios.json`, a list of {"config", "out", "resume", "stop_at", "full_at"} and "world" if it is not 2. Writes
`codes.json`, the exit codes of each scenario; scenario n leaves the weights of rank r after each of its steps in
`weights-<n>-<r>`, and what it said when it failed in `words-<n>-<r>`.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import torch

from tests.train.tiny import use_tiny_data
from varlearn.files import sealed
from varlearn.train import fit, from_json
from varlearn.train.training import Training


def train(scenario: dict[str, Any], rank: int, weights: Path) -> None:
    """One process of a scenario."""
    seen: list[torch.Tensor] = []
    update = Training.update

    def watched(self: Training) -> None:
        if rank == 1 and self.step == scenario["stop_at"]:
            signal.raise_signal(signal.SIGTERM)  # one process alone is told
        update(self)
        seen.append(torch.nn.utils.parameters_to_vector(self.model.parameters()).detach().clone())
        if self.step == scenario["full_at"]:
            sealed.write = disk_full

    Training.update = watched
    try:
        fit(from_json(scenario["config"]), scenario["out"], resume=scenario["resume"], progress=False)
    finally:
        torch.save(seen, weights)


def disk_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fork(scenario: dict[str, Any], rank: int, port: int, folder: Path, number: int) -> int:
    """Start one process of a scenario, and return its number."""
    child = os.fork()
    if child:
        return child
    os.environ |= {"WORLD_SIZE": str(scenario.get("world", 2)), "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    code = 1
    try:
        train(scenario, rank, folder / f"weights-{number}-{rank}")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException as error:
        (folder / f"words-{number}-{rank}").write_text(str(error))
        code = getattr(error, "exit_code", 1)
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stderr.flush()
        os._exit(code)


def main(folder: Path) -> None:
    use_tiny_data()
    torch.optim.SGD([torch.zeros(1)])  # imports much of torch
    codes = []
    for number, scenario in enumerate(json.loads((folder / "scenarios.json").read_text())):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        children = [fork(scenario, rank, port, folder, number) for rank in range(scenario.get("world", 2))]
        codes.append([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
    (folder / "codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
