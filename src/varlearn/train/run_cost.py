"""What a run has cost: time per pass over the data, and memory, from its `timing.jsonl`."""

from __future__ import annotations

import json
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

from varlearn.train.run_folder import RunFolder


def run_cost(out: str | Path) -> dict[str, Any]:
    """Seconds of a pass over the training data, and the most memory that the run held.

    The time between two lines of the log is divided by its epochs, and the median taken: a pause, an evaluation or a
    checkpoint does not count.

    Args:
        out: folder of a run.

    Returns:
        "seconds_per_epoch", "hours" of all its epochs, and in bytes "memory", the peak, "state_memory" and
        "weight_memory"; None for what is not known.
    """
    folder = RunFolder(Path(out))
    if not folder.timing.exists():
        raise FileNotFoundError(f"{folder.timing} does not exist; train the run first")
    records = [json.loads(line) for line in folder.timing.read_text(encoding="utf-8").splitlines()]
    steps = [record for record in records if "seconds" in record or record.get("event") == "start"]
    rates = []
    for before, after in pairwise(steps):
        taken = after["step"] - before["step"]
        if "event" not in after and taken > 0:
            rates.append((after["time"] - before["time"]) / taken)
    step, epoch = _progress(folder)
    sizes = next((record["bytes"] for record in reversed(records) if record.get("event") == "end"), {})
    seconds = statistics.median(rates) * step / epoch if rates and epoch else None
    return {
        "seconds_per_epoch": seconds,
        "hours": None if seconds is None else seconds * epoch / 3600.0,
        "memory": sizes.get("peak"),
        "state_memory": sizes.get("state"),
        "weight_memory": sizes.get("weights"),
    }


def _progress(folder: RunFolder) -> tuple[int, float]:
    """Steps and epochs, of the last line of the log that has both."""
    for line in reversed(folder.log.read_text(encoding="utf-8").splitlines()):
        record = json.loads(line)
        if record.get("step") and record.get("epoch"):
            return record["step"], record["epoch"]
    return 0, 0.0
