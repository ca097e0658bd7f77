"""Train the example methods by the command line, kill each with SIGKILL after a checkpoint, then resume it.

    python -m tests.methods.kills FOLDER METHODS... -- FLAGS...

Every attempt is a process of its own, forked from this one, which has imported everything. Prints, as JSON, the number
of the newest checkpoint when each method was killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from tests.methods.examples import EXAMPLES
from varlearn.methods import METHODS

LATEST_KILL = 60.0  # seconds


def fork_command(words: list[str]) -> int:
    """Run `varlearn` in a child process; return its number."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            from varlearn.cli import main

            code = main(words)
        finally:
            os._exit(code)
    return child


def newest(out: Path) -> int:
    """The step of the newest checkpoint, or 0."""
    return max((int(path.stem[5:]) for path in (out / "checkpoint").glob("step-*.safetensors")), default=0)


def killed(words: list[str], out: Path, after: int) -> int:
    """Kill a run once it has a checkpoint of step `after` or later; return that checkpoint's step."""
    child, began = fork_command(words), time.monotonic()
    while newest(out) < after and time.monotonic() - began < LATEST_KILL:
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == -signal.SIGKILL, f"the run ended by itself with {status}"
    return newest(out)


def main(folder: str, *words: str) -> None:
    names, flags = words[: words.index("--")], list(words[words.index("--") + 1 :])
    METHODS.update(EXAMPLES)
    steps = {}
    for name in names:
        out = Path(folder, name)
        command = ["train", f"digits-{name}", *flags, "--out", str(out), "--resume"]
        steps[name] = killed(command, out, after=30)
        code = os.waitstatus_to_exitcode(os.waitpid(fork_command(command), 0)[1])
        assert code == 0, f"resuming {name} ended with {code}"
    print(json.dumps(steps))


if __name__ == "__main__":
    import torch

    import varlearn.cli.train_command
    import varlearn.train.evaluate
    import varlearn.train.training_loop  # noqa: F401
    from varlearn import data

    data.load("digits", "train")  # imports scikit-learn
    torch.optim.SGD([torch.zeros(1)])  # imports much of torch
    main(*sys.argv[1:])
