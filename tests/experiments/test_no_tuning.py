"""The queue, the pairing over seeds, the choice of rates and scales, and the intervals of experiments/no_tuning."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from torch import nn

from experiments.no_tuning import ivon_summary, run, summary, training
from experiments.no_tuning.tasks import SCALE, TASKS, Part, Parts, Task

RATES = {"sgd": (0.01, 0.03, 0.1), "adamw": (1e-3, 3e-3, 1e-2)}


def small(seed: int = 0, kind: Any = "classes", n: int = 60) -> Task:
    source = torch.Generator().manual_seed(seed)
    inputs = torch.randn(3, n, 4, generator=source)
    targets = (inputs[..., 0] > 0).long() if kind == "classes" else inputs[..., 0]
    parts = Parts(*(Part(x, y) for x, y in zip(inputs, targets, strict=True)))
    return Task(lambda seed: parts, lambda: nn.Sequential(nn.Linear(4, 2)), 20, 2.5, RATES, kind, samples=3)


def row(task: str, method: str, seed: int, rate: float, validation: float, test: float = 0.0) -> dict[str, Any]:
    scores = {part: {"mean": {"nll": nll}} for part, nll in (("validation", validation), ("test", test))}
    return {"task": task, "method": method, "seed": seed, "rate": rate, **scores}


class Fixed:
    """A posterior of known width around the model's weights."""

    has_posterior = True
    samples = 1

    def __init__(self, model: nn.Module, std: float) -> None:
        self.model, self.std = model, std
        self.mean = [p.detach().clone() for p in model.parameters()]

    def perturb(self) -> None:
        pass

    def step(self, schedule: float) -> None:
        pass

    def show(self, scale: float, number: int) -> None:
        source = torch.Generator().manual_seed(number)
        for p, mean in zip(self.model.parameters(), self.mean, strict=True):
            p.data.copy_(mean + scale * self.std * torch.randn(mean.shape, generator=source))


def test_eight_tasks_have_five_rates_around_the_middle() -> None:
    assert len(TASKS) == 8
    for task in TASKS.values():
        for rates in task.rates.values():
            assert len(rates) == 5
            assert set(rates) <= set(SCALE)


def test_digits_parts_share_no_example() -> None:
    parts = TASKS["digits-mlp"].data(0)
    rows = [{tuple(image.flatten().tolist()) for image in part.inputs} for part in parts]
    assert [len(part.inputs) for part in parts] == [800, 200, 797]
    assert not rows[0] & rows[1]
    assert not (rows[0] | rows[1]) & rows[2]


def test_an_edge_is_extended_until_the_best_rate_lies_inside() -> None:
    name, rates = "digits-mlp", TASKS["digits-mlp"].rates["adamw"]
    results = [row(name, "adamw", run.TUNING_SEED, rate, validation=-rate) for rate in rates]
    beyond = SCALE[SCALE.index(rates[-1]) + 1]
    assert run.missing_rates(results[:-1], name, "adamw") == [rates[-1]]
    assert run.missing_rates(results, name, "adamw") == [beyond]
    assert run.best_rate(results, name, "adamw") is None
    results.append(row(name, "adamw", run.TUNING_SEED, beyond, validation=1.0))
    assert run.best_rate(results, name, "adamw") == rates[-1]


def test_the_rate_is_chosen_by_validation_whatever_the_test_scores() -> None:
    name, rates = "digits-mlp", TASKS["digits-mlp"].rates["sgd"]
    results = [row(name, "sgd", run.TUNING_SEED, rate, validation=abs(i - 1), test=-i) for i, rate in enumerate(rates)]
    assert run.best_rate(results, name, "sgd") == rates[1]


def test_a_final_job_waits_for_its_tuning_and_no_job_runs_twice() -> None:
    name = "digits-mlp"
    queue, results = run.default_queue([name]), []
    while (job := run.next_job(queue, results)) is not None:
        results.append(row(name, job["method"], job["seed"], job["rate"], abs(math.log(job["rate"] / 0.01))))
    assert len(results) == 2 * 5 + 2 * len(run.SEEDS)
    assert {r["rate"] for r in results if r["seed"] in run.SEEDS} == {0.01}
    assert len({(r["method"], r["rate"], r["seed"]) for r in results}) == len(results)


def test_a_job_with_fewer_options_is_another_job() -> None:
    job = {"task": "digits-mlp", "method": "rule", "seed": 0, "test": False}
    done = job | {"width": 1.0, "validation": {"mean": {"nll": 0.1}}, "seconds": 1.0}
    assert run.next_job([job], [done]) == job
    assert run.next_job([job | {"width": 1.0}], [done]) is None


def test_a_diverged_run_loses_the_tuning() -> None:
    name, rates = "digits-mlp", TASKS["digits-mlp"].rates["sgd"]
    results = [row(name, "sgd", run.TUNING_SEED, rate, validation=1.0 + (i == 0)) for i, rate in enumerate(rates)]
    for part in ("validation", "test"):
        del results[1][part]
    assert run.best_rate(results, name, "sgd") == rates[2]


def test_batches_depend_on_the_seed_alone() -> None:
    task = small()
    parts = task.data(0)
    first, again, other = (
        torch.cat([batch.inputs for batch in islice(training.batches(task, parts.train, seed), 4)])
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_pass_serves_every_example_once() -> None:
    task = small()
    train = task.data(0).train
    served = torch.cat([batch.inputs for batch in islice(training.batches(task, train, 0), 3)])
    assert torch.equal(served.sort(0).values, train.inputs.sort(0).values)


def test_grouping_by_length_keeps_the_examples() -> None:
    tokens = (torch.arange(7) <= torch.arange(70)[:, None] % 7).long()  # ten of each length
    order = torch.randperm(70, generator=torch.Generator().manual_seed(0))
    grouped = training.grouped(order, Part(tokens, tokens[:, 0]), 10, torch.Generator().manual_seed(0))
    assert torch.equal(grouped.sort().values, torch.arange(70))
    lengths = tokens[grouped].sum(1).view(-1, 10)
    assert torch.equal(lengths.max(1).values, lengths.min(1).values)


def test_the_baseline_learns_and_its_schedule_ends_near_zero() -> None:
    task = replace(small(), passes=20)
    result = training.run(task, 0, lambda model, parts: training.Baseline("adamw", model, 0.1))
    assert result["validation"]["mean"]["nll"] < 0.3
    assert set(result["test"]) == {"mean"}
    assert training.schedule(0, 1_000) == pytest.approx(1 / 50)
    assert training.schedule(999, 1_000) < 1e-5


def test_calibration_is_never_worse_than_the_mean_on_validation_data() -> None:
    for std in (0.1, 30.0):
        result = training.run(small(), 0, lambda model, parts, std=std: Fixed(model, std))
        scores = result["validation"]
        assert scores["calibrated"]["nll"] <= min(scores["mean"]["nll"], scores["averaged"]["nll"])
        assert set(result["test"]) == {"mean", "averaged", "calibrated"}
    assert result["scale"] == 0.0  # noise of this size helps nobody


def test_no_test_scores_are_computed_for_exploration() -> None:
    result = training.run(small(), 0, lambda model, parts: Fixed(model, 0.1), test=False)
    assert "test" not in result


def test_the_average_of_two_gaussians_is_a_mixture() -> None:
    task, average = small(kind="regression"), training.Average()
    targets, log_std = torch.tensor([0.5]), math.log(math.expm1(1.0 - 1e-3))  # a standard deviation of 1
    for mean in (0.0, 2.0):
        average.add(task, torch.tensor([[mean, log_std]]), targets)
    density = sum(math.exp(-0.5 * (0.5 - mean) ** 2) for mean in (0.0, 2.0)) / 2 / math.sqrt(2 * math.pi)
    scores = average.scores(task, targets)
    assert scores["nll"] == pytest.approx(-math.log(density), rel=1e-5)
    assert scores["rmse"] == pytest.approx(0.5, rel=1e-5)


def test_a_diverged_run_is_recorded_as_such() -> None:
    task = replace(small(kind="regression"), model=lambda: nn.Sequential(nn.Linear(4, 2), Infinite()))
    assert training.run(task, 0, lambda model, parts: training.Baseline("sgd", model, 0.1))["diverged"]


class Infinite(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * math.inf


def test_the_interval_of_five_differences() -> None:
    assert summary.interval([1.0, 1.0, 1.0, 1.0, 1.0]) == (1.0, 1.0, 1.0)
    mean, low, high = summary.interval([0.0, 1.0, 2.0, 3.0, 4.0])
    assert (mean, high - mean) == (2.0, pytest.approx(2.776 * math.sqrt(2.5 / 5)))
    assert low == pytest.approx(2 * mean - high)


def test_differences_are_paired_over_common_seeds() -> None:
    results = tuned_results() + [row("digits-mlp", "vadamw", seed, 0.1, 0.0, test=seed + 0.5) for seed in (0, 1, 7)]
    got = summary.difference(results, "digits-mlp", "vadamw", "mean", "nll", ("sgd", "mean"))
    assert got is not None
    assert got.mean == pytest.approx(0.5)
    assert got.low == pytest.approx(got.high)


def test_the_better_baseline_is_chosen_by_validation() -> None:
    assert summary.better_baseline(tuned_results(), "digits-mlp") == "adamw"


def tuned_results() -> list[dict[str, Any]]:
    """SGD is better on test data, AdamW on validation data."""
    results = []
    for method, validation in (("sgd", 2.0), ("adamw", 1.0)):
        rates = TASKS["digits-mlp"].rates[method]
        results += [row("digits-mlp", method, run.TUNING_SEED, rate, abs(i - 2)) for i, rate in enumerate(rates)]
        results += [row("digits-mlp", method, seed, rates[2], validation, test=seed + validation) for seed in range(5)]
    for r in results:
        if r["method"] == "sgd" and r["seed"] in run.SEEDS:
            r["test"]["mean"]["nll"] = float(r["seed"])
    return results


def test_a_job_may_be_shorter_than_its_task() -> None:
    assert run.task_of({"task": "concrete", "passes": 0.5}).passes == TASKS["concrete"].passes / 2
    assert run.task_of({"task": "concrete"}) == TASKS["concrete"]


def test_the_table_of_options_compares_common_seeds_alone() -> None:
    def of(variant: str, seed: int, nll: float) -> dict[str, Any]:
        return {"task": "a", "variant": variant, "seed": seed, "validation": {"calibrated": {"nll": nll}}}

    results = [of("base", 10, 1.0), of("base", 11, 4.0), of("pairs", 10, 1.5), of("cap", 11, 6.0)]
    results.append({"task": "a", "variant": "diverged", "seed": 10})
    assert [ivon_summary.cell(results, "a", name) for name in ("base", "pairs", "cap", "diverged", "none")] == [
        "2.500 (2)",
        "+0.500 (1)",
        "fails (1)",
        "fails (1)",
        "",
    ]
