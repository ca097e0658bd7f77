"""Compile the C source on first use, and keep the result.

The shared library is kept in the user's cache directory under a name that says what it was made from (source, compiler,
flags, processor) and what it contains (its digest). So a change of any of them compiles again, a damaged file is never
loaded, and processes that compile at the same time cannot disturb each other.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

_FLAGS = ("-std=gnu11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fno-strict-aliasing")
_LINK_FLAGS = ("-shared", "-fPIC", "-fvisibility=hidden", "-lm")
# Some compilers know no OpenMP, some refuse to name the processor: the first variant that compiles is taken.
_VARIANTS = (("-march=native", "-fopenmp"), ("-fopenmp",), ("-march=native",), ())
_TIMEOUT_SECONDS = 120.0


class BuildError(RuntimeError):
    """Why there is no library: no compiler, or what the compiler said."""


def load(source: Path) -> ctypes.CDLL:
    """The library made from a C source, from the cache or compiled now.

    Args:
        source: the C file.

    Returns:
        The loaded library. Compiling takes about a second.

    Raises:
        BuildError: there is no compiler, it fails, or what it made cannot be loaded.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = Path(folder) / "answer.c"
    ...     _ = source.write_text('__attribute__((visibility("default"))) int answer(void) { return 42; }')
    ...     load(source).answer()
    42
    """
    compiler = find_compiler()
    key = _fingerprint(source, compiler)
    folders = list(cache_folders())
    path = next((found for folder in folders if (found := _cached(folder, key))), None)
    try:
        return ctypes.CDLL(str(path or _compile(source, compiler, folders, key)))
    except OSError as error:
        raise BuildError(f"the compiled library cannot be loaded: {error}") from error


def find_compiler() -> list[str]:
    """The command of the C compiler: $CC, else cc, gcc or clang, whichever is on the PATH first.

    Raises:
        BuildError: there is none.
    """
    named = shlex.split(os.environ.get("CC", ""))
    if named:
        program = shutil.which(named[0])
        if program is None:
            raise BuildError(f"CC={os.environ['CC']!r} is not a program on the PATH")
        return [program, *named[1:]]
    for name in ("cc", "gcc", "clang"):
        program = shutil.which(name)
        if program is not None:
            return [program]
    raise BuildError("no C compiler: CC is not set and none of cc, gcc, clang is on the PATH")


def _fingerprint(source: Path, compiler: list[str]) -> str:
    facts = [_run([*compiler, "--version"]), _processor(), repr((compiler, _FLAGS, _LINK_FLAGS, _VARIANTS))]
    sources = sorted(source.parent.glob("*.[ch]"))  # kernel.c includes the headers beside it
    content = [path.read_bytes() for path in sources] + [fact.encode() for fact in facts]
    return hashlib.sha256(b"\0".join(content)).hexdigest()[:24]


def _processor() -> str:
    """What `-march=native` depends on: the model of the processor and what it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)})) + platform.machine()


def cache_folders() -> Iterator[Path]:
    """Where libraries may lie, best first: the user's cache, a folder of the user's among the temporary files."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    with contextlib.suppress(RuntimeError):  # no home directory
        yield (named if named.is_absolute() else Path.home() / ".cache") / "varlearn"
    user = os.getuid() if hasattr(os, "getuid") else "user"
    yield Path(tempfile.gettempdir()) / f"varlearn-{user}"


def _cached(folder: Path, key: str) -> Path | None:
    """The library of `key` in `folder`, if it is there, undamaged, and only the user can have put it there."""
    try:
        if not _private(folder):
            return None
        for path in sorted(folder.glob(f"{key}-*.so")):
            if path.name == _file_name(key, path.read_bytes()):
                return path
    except OSError:
        pass
    return None


def _private(folder: Path) -> bool:
    """Whether only the user can have put files here: files in it are loaded and run."""
    if not hasattr(os, "getuid"):
        return True
    info = folder.stat()
    return info.st_uid == os.getuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _file_name(key: str, content: bytes) -> str:
    return f"{key}-{hashlib.sha256(content).hexdigest()[:24]}.so"


def _compile(source: Path, compiler: list[str], folders: list[Path], key: str) -> Path:
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _private(folder):
                return _compile_into(folder, source, compiler, key)
        except OSError:  # read-only, full, or not a folder: the next one
            continue
    return _compile_into(Path(tempfile.mkdtemp(prefix="varlearn-")), source, compiler, key)


def _compile_into(folder: Path, source: Path, compiler: list[str], key: str) -> Path:
    with tempfile.TemporaryDirectory(dir=folder) as workshop:
        made = Path(workshop) / "library.so"
        for variant in _VARIANTS:
            try:
                _run([*compiler, *_FLAGS, *variant, str(source), "-o", str(made), *_LINK_FLAGS])
                break
            except BuildError:
                if variant is _VARIANTS[-1]:
                    raise
        path = folder / _file_name(key, made.read_bytes())
        made.replace(path)
    for damaged in folder.glob(f"{key}-*.so"):
        if damaged != path:
            damaged.unlink(missing_ok=True)
    return path


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"`{command[0]}` cannot be run: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise BuildError(f"`{command[0]}` failed with exit code {done.returncode}: {said[0] if said else 'no message'}")
    return done.stdout
