"""Unpack the sdist and collect its tests there: everything that they import and read must be in it.

python -m tools.check_sdist dist
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
COLLECT = ("-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider")


def collected(folder: Path) -> list[str]:
    """The tests that pytest finds in a folder, with the sources of that folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run([sys.executable, *COLLECT], cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"pytest cannot collect the tests in {folder}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return [line for line in done.stdout.splitlines() if "::" in line]


def main(dist: str) -> None:
    """Compare the tests and the modules of the sdist and of the wheel with those of this folder."""
    (sdist,), (wheel,) = Path(dist).glob("*.tar.gz"), Path(dist).glob("*.whl")
    with tempfile.TemporaryDirectory() as temporary, tarfile.open(sdist) as archive:
        archive.extractall(temporary, filter="data")
        (unpacked,) = Path(temporary).iterdir()
        here, there = collected(ROOT), collected(unpacked)
    if missing := sorted(set(here) - set(there)):
        raise SystemExit(f"{sdist} lacks {len(missing)} tests, e.g. {missing[0]}; see tool.hatch in pyproject.toml")
    files = [
        path for path in (ROOT / "src" / "varlearn").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    sources = {str(path.relative_to(ROOT / "src")) for path in files}
    if missing := sorted(sources - set(ZipFile(wheel).namelist())):
        raise SystemExit(f"{wheel} lacks {len(missing)} files, e.g. {missing[0]}; see tool.hatch in pyproject.toml")
    print(f"{sdist.name}: {len(there)} tests collected; {wheel.name}: {len(sources)} files of the package")


if __name__ == "__main__":
    main(*sys.argv[1:])
