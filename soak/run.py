"""Try every promise: `python -m soak.run --full --only kills damage --seed 0`.

`make soak` runs the short campaign in at most 30 minutes and keeps its counts in runs/soak. `make soak-full` takes
hours, keeps its counts in soak/results and fills docs/reliability.md. An interrupted campaign continues where it was
when the same command is repeated. The exit code is 0 if every promise was kept, 1 if one was broken or a part failed,
130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks.environment import describe
from soak import page, results
from soak.part import Part
from soak.parts import PARTS
from soak.results import Document

SHORT_FOLDER = results.REPO / "runs" / "soak"
_SAVED_EVERY = 5.0  # seconds
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that the command line asks for."""
    options = _parse(arguments)
    folder = options.out or (results.FOLDER if options.full else SHORT_FOLDER)
    broken: list[str] = []
    try:
        for part in _chosen(options):
            wanted = options.count if options.count is not None else part.full if options.full else part.short
            try:
                document = _try(part, wanted, options, folder)
            except Exception:
                traceback.print_exc()
                broken.append(f"{part.name} failed, see above")
                continue
            if not results.kept(part, document):
                broken.append(f"{part.name}: {document['broken']} of {document['done']} {part.unit}")
    except KeyboardInterrupt:
        print("\ninterrupted; the same command continues", file=sys.stderr)
        return _INTERRUPTED
    finally:
        if folder == results.FOLDER:
            page.refresh()
    if broken:
        print("\nbroken: " + "; ".join(broken), file=sys.stderr)
    return 1 if broken else 0


def _chosen(options: argparse.Namespace) -> list[Part]:
    if options.only:
        return [PARTS[name] for name in options.only]
    return [part for part in PARTS.values() if (part.full if options.full else part.short)]


def _try(part: Part, wanted: int, options: argparse.Namespace, folder: Path) -> Document:
    """Run the cases of a part that are left, and keep the counts every few seconds."""
    document = _earlier(part, wanted, options, folder)
    print(f"\n== {part.name}: {part.promise}", flush=True)
    if document["finished"] and document["done"] >= wanted:
        print(f"done already: {_line(part, document)}")
        return document
    document |= {"wanted": wanted, "finished": False}
    before, began, saved = document["seconds"], time.monotonic(), 0.0
    shown = options.progress
    try:
        for outcome in part.cases(range(document["done"], wanted), options.seed):
            results.add(document, outcome)
            if not outcome.kept:
                print(
                    f"broken, case {document['done'] - 1}, {outcome.kind}: {results.plain(outcome.detail)}", flush=True
                )
            document["seconds"] = round(before + time.monotonic() - began, 1)
            if time.monotonic() - saved > _SAVED_EVERY:
                saved = time.monotonic()
                results.write(folder, document)
                if shown:
                    print(_line(part, document), flush=True)
        document["finished"] = True
    finally:
        results.write(folder, document)
    print(_line(part, document), flush=True)
    return document


def _earlier(part: Part, wanted: int, options: argparse.Namespace, folder: Path) -> Document:
    """What an interrupted command has counted, or a new document."""
    found = results.read(folder, part.name)
    if found is not None and found["seed"] != options.seed:
        raise ValueError(
            f"{folder / part.name}.json has seed {found['seed']}, not {options.seed}; remove it or give --out"
        )
    full = " --full" if options.full else f" --count {wanted}"
    command = f"python -m soak.run --only {part.name}{full} --seed {options.seed}"
    return found if found is not None else results.begin(part, options.seed, wanted, describe(command))


def _line(part: Part, document: Document) -> str:
    largest = "".join(f", {name} <= {value:.3g}" for name, value in document["largest"].items())
    return (
        f"{document['done']:,} of {document['wanted']:,} {part.unit}, {document['broken']} broken{largest}, "
        f"{document['seconds']:.0f} s"
    )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak.run", description="Try to break every promise.")
    parser.add_argument("--full", action="store_true", help="the full campaign, hours")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), metavar="PART", help=f"some of {' '.join(PARTS)}")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (0)")
    parser.add_argument("--count", type=int, help="cases per part instead of the campaign's own number")
    parser.add_argument("--out", type=Path, help="folder for the JSON files (runs/soak, soak/results with --full)")
    parser.add_argument("--progress", action="store_true", help="print the counts every five seconds")
    options = parser.parse_args(arguments)
    if options.count is not None and options.count < 1:
        parser.error(f"--count {options.count} must be >= 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
