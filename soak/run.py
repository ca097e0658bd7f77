"""Try every promise: `python -m soak.run --full --only kills damage --seed 0`.

`make soak` runs the short campaign in at most 30 minutes and keeps its counts in runs/soak. The parts of `_FIRST` run
first. Each part may take half of the time that is left, the last one all of it; then the next one begins.
`make soak-full` takes hours, keeps its counts in soak/results and fills docs/reliability.md. An interrupted campaign
continues where it was when the same command is repeated. The exit code is 0 if every promise was kept, 1 if one was
broken or a part failed, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import math
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
_MINUTES = 30.0  # of the short campaign
_LAST_CASE = 120.0  # seconds that are kept for a case which has begun when the time is over
_FIRST = ("mutants", "kills", "rank_kills", "damage", "fuzz")  # in the short campaign, which may not reach the others
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that the command line asks for."""
    options = _parse(arguments)
    folder = options.out or (results.FOLDER if options.full else SHORT_FOLDER)
    broken: list[str] = []
    end = time.monotonic() + 60.0 * options.minutes - _LAST_CASE if options.minutes else math.inf
    chosen = _chosen(options)
    try:
        for part in chosen:
            wanted = options.count if options.count is not None else part.full if options.full else part.short
            now = time.monotonic()
            until = end if part is chosen[-1] else now + (end - now) / 2
            try:
                document = _try(part, wanted, options, folder, until)
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
    if options.full:
        return [part for part in PARTS.values() if part.full]
    first = [PARTS[name] for name in _FIRST if name in PARTS]
    return [part for part in [*first, *(part for part in PARTS.values() if part not in first)] if part.short]


def _try(part: Part, wanted: int, options: argparse.Namespace, folder: Path, until: float) -> Document:
    """Run the cases of a part that are left, until a time, and keep the counts every few seconds."""
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
            if time.monotonic() > until:
                print("its time is over; the same command continues", flush=True)
                break
        else:
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
    parser.add_argument("--minutes", type=float, help=f"end after so long ({_MINUTES:g}; with --full or --count never)")
    options = parser.parse_args(arguments)
    if options.count is not None and options.count < 1:
        parser.error(f"--count {options.count} must be >= 1")
    if options.minutes is None:
        options.minutes = 0.0 if options.full or options.count is not None else _MINUTES
    elif not 60.0 * options.minutes > _LAST_CASE:
        parser.error(f"--minutes {options.minutes:g} must be > {_LAST_CASE / 60.0:g}")
    return options


if __name__ == "__main__":
    sys.exit(main())
