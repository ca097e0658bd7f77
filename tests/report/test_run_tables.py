"""Time and memory beside AdamW, and settings beside the preset."""

import re
from dataclasses import replace

from varlearn import presets
from varlearn.report.run_results import RunResults
from varlearn.report.run_tables import cost_table, settings_table
from varlearn.report.series import grouped


def timed(method: str, seconds: float, copies: int) -> RunResults:
    steps = [{"step": 10 * k, "seconds": 1.0 + 10 * k * seconds} for k in range(1, 4)]
    later = [{"event": "start", "step": 30}, {"step": 40, "seconds": 500.0}]  # resumed: another clock
    end = {"event": "end", "step": 40, "bytes": {"weights": 1000, "state": 1000 * copies}}
    return RunResults(method, method, timing=[{"event": "start", "step": 0}, *steps, *later, end])


def cells(html: str) -> list[list[str]]:
    rows = re.findall(r'<tr><th scope="row">(.*?)</tr>', html)
    return [[cell for cell in re.sub("<[^>]*>", "|", row).split("|") if cell] for row in rows]


def test_time_and_memory_beside_adamw() -> None:
    html = cost_table(grouped([timed("ivon", 0.25, 3), timed("adamw", 0.125, 2)]))
    assert cells(html) == [
        ["IVON", "250 ms", "2.00 ×", "3 kB", "3.0"],
        ["AdamW", "125 ms", "1.00 ×", "2 kB", "2.0"],
    ]
    assert "beside AdamW" not in cost_table(grouped([timed("ivon", 0.25, 3)]))
    assert cost_table(grouped([RunResults("x", "sgd")])) == ""


def test_settings_beside_the_preset() -> None:
    usual = presets.short_run(n=1_000, steps=500)
    optim = {"name": "ivon", "lr": 7.0, "ess": usual["ess"], "beta1": usual["betas"][0], "beta2": usual["betas"][1]}
    config = {"seed": 3, "optim": optim, "data": {"name": "digits"}, "train": {"epochs": 1}}
    run = RunResults("x", "ivon", config=config, facts={"n": 1_000, "steps": 500})
    found = dict((row[0], row[1:]) for row in cells(settings_table(grouped([run]))))
    assert found["optim.lr"] == ["7 ", f"preset {usual['lr']:g}"]
    assert found["optim.ess"] == [f"{usual['ess']:.6g}"]
    assert "train.epochs" not in found  # not of the method, and all runs have the same
    clipped = replace(run, config={**config, "optim": {**optim, "rescale_lr": False}})
    rows = {row[0]: row[1:] for row in cells(settings_table(grouped([clipped])))}
    assert rows["optim.lr"][1] == f"preset {presets.short_run(n=1_000, steps=500, like='adamw')['lr']:g}"
    other = RunResults("y", "sgd", config={**config, "train": {"epochs": 2}, "optim": {"name": "sgd"}})
    both = dict((row[0], row[1:]) for row in cells(settings_table(grouped([run, other]))))
    assert both["train.epochs"] == ["1", "2"]
    assert both["optim.ess"][-1] == "–"
    assert settings_table(grouped([RunResults("x", "sgd")])) == ""
