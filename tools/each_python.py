"""Run the tests with every supported Python that is found, each in its own virtual environment; say which are missing.

python tools/each_python.py                        # python3.10 to python3.13 on the PATH
python tools/each_python.py /opt/bin/python3.12    # these as well
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13")  # those of the classifiers in pyproject.toml
ROOT = Path(__file__).parents[1]


def version_of(python: str) -> str | None:
    """The version of an interpreter, e.g. "3.12"; None if it does not run."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def found(given: list[str]) -> dict[str, str]:
    """Version -> interpreter, of those given and of those on the PATH."""
    pythons = [*given, *filter(None, (shutil.which(f"python{version}") for version in VERSIONS)), sys.executable]
    known: dict[str, str] = {}
    for python in pythons:
        if (version := version_of(python)) in VERSIONS:
            known.setdefault(version, python)
    return known


def main(given: list[str]) -> int:
    """Run `make test` with each; returns 1 if one fails."""
    known = found(given)
    results = {}
    for version in VERSIONS:
        if version in known:
            words = ["make", "test", f"VENV=.venv-{version}", f"PYTHON={known[version]}"]
            environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
            done = subprocess.run(words, cwd=ROOT, env=environment)
            results[version] = "passed" if done.returncode == 0 else "FAILED"
    for version in VERSIONS:
        print(f"Python {version}: {results.get(version, 'not tested, no interpreter found')}")
    return int("FAILED" in results.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
