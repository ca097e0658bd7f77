"""The settings, the choice of rates and the table of experiments/appendix_a."""

from __future__ import annotations

from typing import Any

from experiments.appendix_a import run


class Recorder:
    """A method that remembers its learning rates."""

    has_posterior = False
    samples = 1

    def __init__(self) -> None:
        self.seen: list[float] = []

    def perturb(self) -> None:
        pass

    def show(self, scale: float, number: int) -> None:
        pass

    def step(self, schedule: float) -> None:
        self.seen.append(schedule)


def row(method: str, seed: int, rate: float, nll: float, setting: str = "as it is") -> dict[str, Any]:
    scores = {"mean": {"nll": nll}, "averaged": {"nll": nll - 0.5}}
    return {
        "network": "digits",
        "setting": setting,
        "method": method,
        "seed": seed,
        "rate": rate,
        "validation": scores,
        "test": scores,
    }


def test_the_last_rate_is_a_share_of_the_peak() -> None:
    recorder = Recorder()
    method = run.LastRate(recorder, 0.1)
    for schedule in (1.0, 0.5, 0.0):
        method.step(schedule)
    assert recorder.seen == [1.0, 0.55, 0.1]


def test_larger_batches_keep_either_the_passes_or_the_steps() -> None:
    task = run.NETWORKS["digits"]
    train = task.data(0).train
    steps = {name: each.steps(train) for name, (each, _) in run.settings(task).items()}
    assert steps["4 x passes"] == 4 * steps["as it is"]
    assert steps["4 x batch, same passes"] == steps["as it is"] / 4
    assert steps["4 x batch, same steps"] == steps["as it is"]


def of_sgd(*values: tuple[float, float]) -> list[dict[str, Any]]:
    return [row("sgd", run.TUNING_SEED, rate, nll) for rate, nll in values]


def test_an_edge_is_extended_and_a_diverged_run_is_never_chosen() -> None:
    results = of_sgd((0.03, 0.2), (0.1, 0.1), (0.3, 0.0))
    job = {key: results[0][key] for key in run.KEYS}
    assert run.next_job(results[:2], job) == job | {"rate": 0.3, "seed": run.TUNING_SEED}
    assert run.next_job(results, job) == job | {"rate": 1.0, "seed": run.TUNING_SEED}
    del results[2]["validation"]
    assert run.next_job(results, job) == job | {"rate": 0.1, "seed": 0}


def test_the_table_shows_the_change_of_each_seed() -> None:
    results = of_sgd((0.03, 2.0), (0.1, 1.0), (0.3, 2.0))
    results += [{**each, "setting": "4 x passes"} for each in of_sgd((0.03, 2.0), (0.1, 1.0), (0.3, 2.0))]
    results += [row("sgd", seed, 0.1, 1.0 + seed) for seed in run.SEEDS]
    results += [row("sgd", seed, 0.1, 1.5 + 2 * seed, "4 x passes") for seed in run.SEEDS]
    first, _, longer, *_ = run.table(results).splitlines()
    assert first == "| digits | as it is | 2.000, rate 0.1 |   |   |"
    assert longer == "| digits | 4 x passes | 3.500 (+0.500 to +2.500), rate 0.1 |   |   |"
