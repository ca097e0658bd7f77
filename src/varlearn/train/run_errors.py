"""What can end a run early, each with the exit code that a command line should give."""

from __future__ import annotations

from pathlib import Path


class RunFolderError(ValueError):
    """A folder that a run must not use as asked: not empty, of another run, without what the stage needs."""

    exit_code = 2


class NonFiniteLossError(FloatingPointError):
    """The loss became NaN or infinite; the weights are those before the step, and so is the last checkpoint."""

    exit_code = 4


class PeerError(RuntimeError):
    """Another process of the run failed, and this one stops with it."""

    exit_code = 5


class Interrupted(SystemExit):
    """Ctrl-C or SIGTERM, after the step was finished and saved; uncaught, it ends the process with 130 or 143.

    >>> str(Interrupted(130, "stopped at step 7"))
    'stopped at step 7'
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code)
        self.message = message

    def __str__(self) -> str:
        return self.message


def stopped(number: int, step: int, steps: int, checkpoints: Path, out: Path) -> Interrupted:
    """What ends a run after a signal: the exit code as shells count, and how to go on.

    >>> stopped(15, 7, 11, Path("run/checkpoint"), Path("run")).code
    143
    """
    message = (
        f"stopped after step {step} of {steps}, saved in {checkpoints}; call fit again with {str(out)!r} and "
        "resume=True, on the command line with --resume"
    )
    return Interrupted(128 + number, message)
