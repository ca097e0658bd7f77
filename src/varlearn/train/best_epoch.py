"""The best scores of a run's evaluations during training."""

from __future__ import annotations

from pathlib import Path

from varlearn.files.checked_json import read_json_lines

LOWER = ("nll", "rmse", "perplexity")  # better; of all other scores higher values are


def best_scores(log: Path) -> dict[str, float]:
    r"""The best value of each score among the evaluations on the tested split, each by itself; nothing without any.

    Args:
        log: `log.jsonl` of a run.

    >>> import json, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = Path(folder, "log.jsonl")
    ...     records = [{"split": "test", "eval": {"accuracy": accuracy, "nll": 0.5}} for accuracy in (0.7, 0.6)]
    ...     _ = log.write_text("".join(json.dumps(record) + "\n" for record in records))
    ...     best_scores(log)
    {'accuracy': 0.7, 'nll': 0.5}
    """
    found: dict[str, float] = {}
    if not log.exists():
        return found
    for record in read_json_lines(log).records:
        if record.get("split") != "test":
            continue
        for name, value in record.get("eval", {}).items():
            better = min if name in LOWER else max
            if isinstance(value, (int, float)):
                found[name] = better(found.get(name, value), value)
    return found
