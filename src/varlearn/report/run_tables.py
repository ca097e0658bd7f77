"""Tables about the runs: time and memory beside AdamW, and settings beside the preset's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from varlearn import presets
from varlearn.report.axis_scale import short
from varlearn.report.page import Cell, table
from varlearn.report.run_results import RunResults
from varlearn.report.series import Group, flat_settings

PRESET_KEYS = {"lr": "lr", "ess": "ess", "hess_init": "hess_init", "weight_decay": "weight_decay"}
HIDDEN = ("recipe", "scale", "seed")


def cost_table(groups: Sequence[Group]) -> str:
    """Time of a step and memory of the optimizer, compared with AdamW where it is among the runs."""
    times = {group: fmean(found) for group in groups if (found := _known(_step_time(run) for run in group.runs))}
    state = {group: found[0] for group in groups if (found := _known(_bytes(run, "state") for run in group.runs))}
    if not times:
        return ""
    weights = {group: _known(_bytes(run, "weights") for run in group.runs) for group in groups}
    base = next((group for group in groups if group.first.method == "adamw" and group in times), None)
    columns = ["method", "time of a step"] + (["beside AdamW"] if base else [])
    columns += ["optimizer state", "copies of the weights"] if state else []
    rows = []
    for group in (one for one in groups if one in times):
        row: list[Cell | str] = [Cell(group.label, color=group.color)]
        row.append(Cell(_seconds(times[group]), bar=times[group] / max(times.values()), color=group.color))
        if base:
            row.append(f"{times[group] / times[base]:.2f} ×")
        if group in state and weights[group]:
            share = state[group] / (max(state.values()) or 1)
            row += [Cell(_size(state[group]), bar=share, color=group.color), f"{state[group] / weights[group][0]:.1f}"]
        elif state:
            row += ["–", "–"]
        rows.append(row)
    caption = (
        "Median time between two lines of the log, per step, mean over seeds; evaluations between them count. The "
        "optimizer's state comes on top of weights and gradients. Runs that shared a machine have inexact times."
    )
    return table(columns, rows, caption)


def settings_table(groups: Sequence[Group]) -> str:
    """Settings of the method, and those in which the groups differ; with the preset's value where it is another."""
    flat = {group: flat_settings(group.first.config) for group in groups if group.first.config}
    if not flat:
        return ""
    expected = {group: _expected(group.first) for group in flat}
    keys = dict.fromkeys(key for settings in flat.values() for key in settings if key not in HIDDEN)
    shown = [key for key in keys if key.startswith("optim.") or len({repr(s.get(key)) for s in flat.values()}) > 1]
    rows = []
    for key in shown:
        cells = []
        for group, settings in flat.items():
            value, usual = settings.get(key), expected[group].get(key)
            differs = usual is not None and key in settings and not _same(value, usual)
            cells.append(Cell(_value(value) if key in settings else "–", f"preset {_value(usual)}" if differs else ""))
        rows.append([key, *cells])
    preset = (
        " Where IVON's value is not that of varlearn.presets.short_run, the preset's stands behind it."
        if any(expected.values())
        else ""
    )
    caption = f"Settings of the method, and others in which the runs differ.{preset} All settings are below."
    return table(["setting", *(group.label for group in flat)], rows, caption)


def _expected(run: RunResults) -> dict[str, Any]:
    """The settings of `presets.short_run` for IVON, if its arguments are known; other methods have no preset."""
    n, steps = run.facts.get("n") or run.analysis.get("facts", {}).get("n"), run.facts.get("steps") or _steps(run)
    if run.method == "ivon" and n and steps:
        rescaled = run.config.get("optim", {}).get("rescale_lr", True)
        values = presets.short_run(n=n, steps=steps, like="sgd" if rescaled else "adamw")
        found = {f"optim.{key}": values[name] for key, name in PRESET_KEYS.items() if name in values}
        return found | {"optim.beta1": values["betas"][0], "optim.beta2": values["betas"][1]}
    return {}


def _steps(run: RunResults) -> int | None:
    steps = [record["step"] for record in run.log if isinstance(record.get("step"), int)]
    return max(steps, default=None)


def _step_time(run: RunResults) -> float | None:
    """Seconds per step: the median over pairs of neighbouring records of one process."""
    times, before = [], None
    for record in run.timing:
        if "seconds" not in record or "step" not in record:
            before = None if record.get("event") == "start" else before
            continue
        if before is not None and record["step"] > before["step"] and record["seconds"] > before["seconds"]:
            times.append((record["seconds"] - before["seconds"]) / (record["step"] - before["step"]))
        before = record
    return median(times) if times else None


def _bytes(run: RunResults, key: str) -> float | None:
    ends = [record["bytes"] for record in run.timing if isinstance(record.get("bytes"), Mapping)]
    return ends[-1].get(key) if ends else None


def _known(values: Any) -> list[float]:
    return [value for value in values if value is not None]


def _same(value: Any, usual: Any) -> bool:
    if isinstance(value, (int, float)) and isinstance(usual, (int, float)):
        return abs(value - usual) <= 1e-9 * max(abs(value), abs(usual), 1e-300)
    return str(value) == str(usual)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value is None else str(value)


def _seconds(value: float) -> str:
    return f"{short(1e3 * value)} ms" if value < 1 else f"{short(value)} s"


def _size(count: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"
