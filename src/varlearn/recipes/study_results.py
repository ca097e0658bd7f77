"""What a study found in each finished run, kept in the run's folder and gathered in one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from varlearn.files.checked_json import read_json, write_json
from varlearn.recipes.jobs import line_jobs
from varlearn.recipes.study import Measured, Study, as_numbers, plain


def measure_runs(study: Study, seeds: int, out: Path, say: Callable[[str], None]) -> list[Measured]:
    """Measure the finished runs of a study, each once: a measurement is kept as `STUDY.json` in the run's folder.

    Args:
        study: whose lines are read.
        seeds: runs of each line.
        out: folder of the runs; `STUDY.json` there gathers the measurements.
        say: told which run is being measured.
    """
    found = []
    for line in study.table.lines:
        for seed in range(seeds):
            for job in line_jobs(line, seed, out):
                if not job.finished:
                    continue
                kept = job.out / f"{study.name}.json"
                if not kept.exists():
                    say(f"measuring {job.out.name}")
                    write_json(kept, plain(study.measure(job.out)))
                found.append(Measured(line, job.run.seed, as_numbers(read_json(kept))))
    rows = [
        {"data": one.line.data, "model": one.line.model, "method": one.line.method, "detail": one.line.detail,
         "seed": one.seed, "values": plain(one.values)}
        for one in found
    ]  # fmt: skip
    if rows:
        write_json(out / f"{study.name}.json", {"study": study.name, "title": study.table.title, "runs": rows})
    return found
