"""The command line `varlearn`, also `python -m varlearn`.

Exit codes: 0 done; 1 something failed while running: missing or damaged data, a missing package; 2 wrong use: the
command cannot be done as it was given, and nothing was written; 3 a file could not be written; 4 the loss became NaN or
infinite; 130 Ctrl-C; 141 the reader of the output went away; 143 SIGTERM. Errors are one line on the standard error;
with `--debug` their traceback follows.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from varlearn.cli.missing_packages import missing_package

OK, ERROR, USAGE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141


def main(tokens: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        tokens: words of the command line; None for those of the process.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if tokens is None else tokens)
    debug = "--debug" in words
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± still gets its table
    try:
        code = _run([word for word in words if word != "--debug"])
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at its exit
        return CLOSED_PIPE
    except KeyboardInterrupt:
        return _failed("interrupted", INTERRUPTED, debug)
    except SystemExit as stop:  # a run that was interrupted and has saved itself says so before
        if debug:
            raise
        return stop.code if isinstance(stop.code, int) else OK if stop.code is None else _failed(str(stop.code), ERROR)
    except Exception as error:
        return _failed(_words(error), _exit_code(error), debug)


def _run(words: list[str]) -> int:
    try:
        from cyclopts import CycloptsError, UnknownOptionError

        from varlearn.cli.app import app
        from varlearn.cli.show import console
    except ModuleNotFoundError as error:
        return _failed(missing_package(error.name or "", "the command line"), ERROR)
    from varlearn.cli.setting_flags import COMMANDS, expanded, suggestion

    takes_settings = bool(words) and words[0] in COMMANDS
    try:
        if takes_settings:
            words = [words[0], *expanded(words[1:])]
        code = app(words, console=console(), exit_on_error=False, print_error=False, result_action="return_value")
    except UnknownOptionError as error:
        flag = error.token.keyword or error.token.value
        known = [name for argument in error.argument_collection for name in argument.names if name.startswith("--")]
        meant = suggestion(flag, known) if takes_settings else None
        what = f"Unknown option: {flag}. Did you mean {meant}?" if meant else _words(error)
        return _failed(f"{what} See {_help_command(words)}.", USAGE)
    except CycloptsError as error:
        return _failed(f"{_words(error)} See {_help_command(words)}.", USAGE)
    return code if isinstance(code, int) else OK


def _help_command(words: list[str]) -> str:
    from varlearn.cli.app import app

    command = words[0] if words and not words[0].startswith("-") and words[0] in app else ""
    return f"varlearn {command} --help".replace("  ", " ")


def _exit_code(error: Exception) -> int:
    """The error's own code; 2 for a value that cannot be used and a file that is missing, but not for damaged data."""
    damaged = any(kind.__name__ in ("DataError", "CorruptFileError", "FileFormatError") for kind in type(error).__mro__)
    is_wrong_use = isinstance(error, (ValueError, FileNotFoundError)) and not damaged
    return getattr(error, "exit_code", USAGE if is_wrong_use else ERROR)


def _words(error: BaseException) -> str:
    missing = error.__cause__ if str(error).startswith("Cannot import module") else error  # while loading the command
    if isinstance(missing, ModuleNotFoundError) and missing.name:  # without a name, the words are our own
        return missing_package(missing.name)
    return " ".join(str(error).split()) or type(error).__name__


def _failed(words: str, code: int, debug: bool = False) -> int:
    print(f"varlearn: {words}", file=sys.stderr)
    if debug:
        import traceback

        traceback.print_exc()
    return code
