"""Measure time and memory, print the tables, keep the figures: `python -m benchmarks.run --only step,memory`.

Figures go to benchmarks/results and into docs/performance.md; those of `--quick` go to runs/benchmarks, for they show
that everything runs and nothing else. Each part is kept as soon as it is done; Ctrl-C loses only the one it interrupts.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import page, results
from benchmarks.bars import verdicts
from benchmarks.contenders import left_out
from benchmarks.environment import describe
from benchmarks.part import Part
from benchmarks.parts import PARTS
from benchmarks.results import Document
from benchmarks.tables import as_text, by_case, cells

QUICK_FOLDER = results.REPO / "runs" / "benchmarks"
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that the command line asks for; 0 unless one of them could not be measured."""
    options = _parse(arguments)
    torch.set_num_threads(options.threads)
    folder = options.out or (QUICK_FOLDER if options.quick else results.FOLDER)
    for name, reason in left_out().items():
        print(f"left out: {name}: {reason}")
    done: dict[str, Document] = {}
    failed: list[str] = []
    try:
        for name in options.only:
            try:
                done[name] = _measure(PARTS[name], options, folder)
            except Exception:
                traceback.print_exc()
                failed.append(name)
    except KeyboardInterrupt:
        print(f"\ninterrupted; kept: {', '.join(done) or 'nothing'}")
        return _INTERRUPTED
    finally:
        if done and folder == results.FOLDER:
            for path in page.refresh(page.load()):
                print(f"wrote {path.relative_to(results.REPO)}")
    reached = verdicts(done)
    if len(reached) > 1 and not options.quick:
        print(f"\n{as_text(reached)}")
    if failed:
        print(f"\nnot measured, see above: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _measure(part: Part, options: argparse.Namespace, folder: Path) -> Document:
    print(f"\n== {part.name}: {part.title}", flush=True)
    earlier = results.committed(part.name)
    environment = describe(_command(part.name, options))
    start = time.perf_counter()
    document = results.document(part.name, part.measure(options.quick), environment, options.quick)
    path = results.write(folder, document)
    for case, figures in by_case(document["figures"]).items():
        print(f"\n{case}\n{as_text(cells(figures, part.columns))}")
    print(f"\n{time.perf_counter() - start:.0f} s; kept in {path.name}", flush=True)
    _print_changes(part, earlier, document)
    return document


def _print_changes(part: Part, earlier: Document | None, document: Document) -> None:
    if earlier is None:
        print("no committed figures to compare with")
        return
    if earlier["quick"] != document["quick"]:
        print("a quick run is not compared with the committed figures")
        return
    changes = results.changes(earlier, document, part.columns)
    if not changes:
        print("the committed figures are of other cases")
        return
    print(f"\ncommitted ({earlier['environment']['date']}) -> now")
    for line in results.other_conditions(earlier, document):
        print(f"  under other conditions: {line}")
    for line in changes:
        print(f"  {line}")


def _command(part: str, options: argparse.Namespace) -> str:
    quick = " --quick" if options.quick else ""
    return f"python -m benchmarks.run --only {part} --threads {options.threads}{quick}"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measure time and memory.")
    parser.add_argument("--only", type=_names, default=list(PARTS), help=f"parts, with commas: {','.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and few rounds, to see that everything runs")
    parser.add_argument("--threads", type=int, default=2, help="of torch and of the native kernel (2)")
    parser.add_argument("--out", type=Path, help="folder for the JSON files")
    options = parser.parse_args(arguments)
    if options.threads < 1:
        parser.error(f"--threads {options.threads} must be >= 1")
    return options


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} must be one of {', '.join(PARTS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
