"""The figures of classes, posteriors, regressions and trainings, for numbers known by hand."""

import math
import re

import torch

from varlearn.prediction import Predictions, RegressionPredictions
from varlearn.report.class_figures import entropy_figure, reliability_figure, risk_figure
from varlearn.report.posterior_figures import layer_figures, layer_table, samples_figure, temperature_figure
from varlearn.report.regression_figures import coverage_figure, interval_figure
from varlearn.report.run_results import RunResults
from varlearn.report.series import all_series, grouped
from varlearn.report.training_figures import training_figures


def numbers(html: str) -> list[list[str]]:
    """The rows of the table below a figure."""
    rows = re.findall(r'<tr><th scope="row">(.*?)</tr>', html)
    return [[cell for cell in re.sub("<[^>]*>", "|", row).split("|") if cell] for row in rows]


def classifier() -> RunResults:
    sure, unsure = torch.tensor([[0.95, 0.05]] * 20).log(), torch.tensor([[0.65, 0.35]] * 5).log()
    targets = torch.tensor([0] * 15 + [1] * 5 + [0] * 5)
    test = Predictions(torch.cat([sure, unsure]), targets, torch.zeros(25), torch.ones(1))
    away = Predictions(torch.tensor([[0.5, 0.5]] * 4).log(), None, torch.zeros(4), torch.ones(1))
    return RunResults("x", "sgd", {"test/mean": test, "noise/mean": away})


def test_reliability_has_the_bins_and_their_accuracies() -> None:
    html = reliability_figure(all_series(grouped([classifier()])))
    assert numbers(html) == [["SGD", "0.75", "0.75", "0.75 at 0.95", "0.75 at 0.95"]]
    assert html.count("faint") == 1  # five examples only


def test_risk_is_the_error_of_the_most_confident() -> None:
    (row,) = numbers(risk_figure(all_series(grouped([classifier()]))))
    assert row[1:3] == ["0.25", "0.2"]  # 5 of the 20 sure ones, then 5 of 25


def test_entropies_are_shares_of_each_set() -> None:
    html = entropy_figure(all_series(grouped([classifier()])))
    assert f"noise: mean entropy {math.log(2):.2f} nats." in html
    assert html.count("<path") > 2
    inside = RunResults("x", "sgd", {"test/mean": classifier().predictions["test/mean"]})
    assert entropy_figure(all_series(grouped([inside]))) == ""


def averaged(nlls: list[float]) -> RunResults:
    halves, curve = torch.tensor([[0.5, 0.5]]).log(), torch.tensor(nlls)
    weights = torch.full((len(nlls),), 1 / len(nlls))
    found = Predictions(halves, torch.tensor([0]), torch.zeros(1), weights, nll_by_samples=curve)
    layers = [
        {"name": f"<{k}>", "count": 4, "weight_rms": 1.0, "std_median": 0.1 * k, "std_low": 0.05, "std_high": 0.5,
         "hess_median": 2.0 * k}
        for k in (1, 2)
    ]  # fmt: skip
    points = [[0.0, 1.0], [0.125, 0.9], [0.5, 0.8], [2.0, 0.7], [8.0, "inf"]]
    curve_of_temperatures = {"split": "validation", "examples": 7, "samples": 8, "points": points}
    return RunResults(
        "x",
        "ivon",
        {"test/averaged": found},
        metrics={"mean": {"nll": 0.5}, "averaged": {"nll": nlls[-1]}},
        analysis={"layers": layers, "temperature": curve_of_temperatures},
    )


def test_samples_of_the_seeds_that_have_them_beside_the_mean() -> None:
    html = samples_figure(grouped([averaged([0.75, 0.25]), averaged([0.5])]))  # the second is at temperature 0
    assert numbers(html)[0] == ["IVON", "0.75", "0.25", "0.25 at 2", "0.75 at 1"]
    assert numbers(html)[1][:3] == ["IVON at the mean", "0.5", "0.5"]
    assert samples_figure(grouped([averaged([0.5])])) == ""


def test_temperatures_start_at_the_mean_and_infinity_breaks_the_line() -> None:
    html = temperature_figure(grouped([averaged([0.5])]))
    assert ">mean</text>" in html
    assert "7 validation examples with 8 samples" in html
    assert numbers(html)[0][3] == "0.7 at 3"  # the posterior itself
    assert len(re.findall(r'<path class="line', html)) == 1
    assert temperature_figure(grouped([RunResults("x", "sgd")])) == ""


def test_layers_beside_the_size_of_their_weights() -> None:
    groups = grouped([averaged([0.5])])
    width, curvature = layer_figures(groups)
    assert numbers(width)[0] == ["IVON: σ", "0.1", "0.2", "0.1 at 1", "0.2 at 2"]
    assert numbers(curvature)[0][:3] == ["IVON", "2", "4"]
    assert "&lt;1&gt;" in layer_table(groups)
    assert layer_figures(grouped([RunResults("x", "sgd")])) == []


def test_coverage_of_intervals() -> None:
    mean = torch.linspace(0.0, 1e-3, 100)
    targets = torch.cat([torch.zeros(90), torch.full((10,), 2.0)])
    found = RegressionPredictions(mean, 0 * mean, 0 * mean + 1, targets, None, torch.ones(1))
    series = all_series(grouped([RunResults("x", "sgd", {"test/mean": found})]))
    assert numbers(coverage_figure(series))[0][1:3] == ["0.9", "1"]  # 2 sigma lie inside the 99% interval only
    assert "36 of 40 targets shown lie inside" in interval_figure(series)
    silent = RegressionPredictions(mean, 0 * mean, 0 * mean, targets, None, torch.ones(1))
    assert interval_figure(all_series(grouped([RunResults("x", "sgd", {"test/mean": silent})]))) == ""


def test_training_curves_average_the_seeds_and_show_their_range() -> None:
    runs = [
        RunResults(
            f"{seed}",
            "ivon",
            log=[
                {"step": 1, "loss": 1.0 + seed, "ivon": {"std_mean": 0.5}},
                {"step": 1, "split": "validation", "eval": {"nll": 0.4}},
                {"step": 2, "loss": "nan"},
                {"step": 2, "split": "leave-one-out", "eval": {"nll": 0.4}},
                {"step": 3, "split": "leave-one-out", "eval": {"nll": 0.3}},
                {"step": 3, "loss": 0.5},
            ],
        )
        for seed in range(2)
    ]
    drawn = [one for one in training_figures(grouped(runs)) if one]
    titles = [re.findall(r"<h3>(.*?)</h3>", one)[0] for one in drawn]
    assert titles == ["Training loss", "Leave-one-out NLL"]  # a single point is no curve
    assert numbers(drawn[0])[0][:3] == ["IVON", "1.5", "0.5"]
    assert 'class="band' in drawn[0]
