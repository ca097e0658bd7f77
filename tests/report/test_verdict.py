"""The three sentences, for results known by hand."""

import torch

from varlearn.advice import Finding
from varlearn.prediction import Predictions
from varlearn.report.run_results import RunResults
from varlearn.report.series import all_series, grouped
from varlearn.report.verdict import merged_findings, scores_in_words, verdict

WIDE = Finding("posterior_too_wide", "warning", "It is < 1.", "It is wide.", "Raise ess.")
NOTE = Finding("n", "note", "By the way.", "Why.", "Nothing.")


def run(method: str, nll: float, averaged: float | None = None, **others: object) -> RunResults:
    metrics = {"mean": {"nll": nll, "accuracy": 0.75, "examples": 4}}
    if averaged is not None:
        metrics["averaged"] = {**metrics["mean"], "nll": averaged}
    return RunResults(method, method, metrics=metrics, **others)  # type: ignore[arg-type]


def words(*runs: RunResults) -> list[str]:
    return scores_in_words(all_series(grouped(runs)))


def test_one_run() -> None:
    assert words(run("sgd", 0.5)) == ["SGD has an NLL of 0.5 on 4 test examples at 75.0% accuracy.", ""]


def test_the_split_is_named() -> None:
    dev = run("sgd", 0.5, config={"data": {"name": "rte", "test": "dev"}})
    assert words(dev)[0] == "SGD has an NLL of 0.5 on 4 dev examples at 75.0% accuracy."


def test_the_lowest_nll_and_what_averaging_does() -> None:
    first, second = words(run("ivon", 0.2, 0.1), run("sgd", 0.5))
    assert first.startswith("IVON has the lowest NLL on 4 test examples: 0.1 at 75.0% accuracy, before SGD with 0.5")
    assert "one seed each: this may be chance" in first
    assert second == "Averaging lowers the NLL of its mean from 0.2 to 0.1."
    first, second = words(run("ivon", 0.1, 0.2), run("sgd", 0.5))
    assert first.startswith("IVON at the mean has the lowest NLL")
    assert second == "Averaging raises the NLL of its mean from 0.1 to 0.2."


def test_differences_within_the_noise_of_the_seeds_are_called_that() -> None:
    near = words(*(run("sgd", nll) for nll in (0.1, 0.3)), *(run("adamw", nll) for nll in (0.15, 0.3)))[0]
    assert "0.2 ± 0.14" in near
    assert near.endswith("; the difference is within the noise of the seeds.")
    far = words(*(run("sgd", nll) for nll in (0.10, 0.11)), *(run("adamw", nll) for nll in (0.3, 0.31)))[0]
    assert "noise" not in far
    assert "mean of 2 seeds" in far


def test_confidence_beside_accuracy() -> None:
    def sure(p: float) -> dict[str, Predictions]:
        log_probs = torch.tensor([[p, 1 - p]] * 4).log()
        return {"test/mean": Predictions(log_probs, torch.tensor([0, 0, 0, 1]), torch.zeros(4), torch.ones(1))}

    for p, verb in ((0.75, "matches"), (0.9, "is above"), (0.6, "is below")):
        second = words(run("sgd", 0.1, predictions=sure(p)), run("adamw", 0.2, predictions=sure(0.9)))[1]
        expected = (
            f"Its mean confidence of {100 * p:.1f}% {verb} its accuracy of 75.0% (AdamW: 90.0% sure, 75.0% right)."
        )
        assert second == expected


def test_regressions_and_runs_without_scores() -> None:
    results = RunResults("x", "sgd", metrics={"mean": {"nll": 1.0, "rmse": 2.0, "coverage90": 0.29, "examples": 10}})
    assert words(results) == [
        "SGD has an NLL of 1 on 10 test examples at an RMSE of 2.000.",
        "Its 90% intervals cover 29% of the targets.",
    ]
    assert words(RunResults("new", "sgd")) == ["These runs have no scores yet: predict and score them first."]


def test_findings_are_named_once_with_their_places_and_the_worst_first() -> None:
    sick = [run("ivon", 0.1, 0.2, findings=(NOTE, WIDE), facts={"n": 1}) for _ in range(2)]
    groups = grouped([*sick, run("sgd", 0.05, facts={"n": 1})])
    assert merged_findings(groups) == [(WIDE, "IVON, 2 of 2 seeds"), (NOTE, "IVON, 2 of 2 seeds")]
    html = verdict(groups, all_series(groups))
    assert "It is &lt; 1." in html
    assert "No check found a problem with the best runs; IVON has warnings, see below." in html
    alone = grouped(sick)
    assert "Next: Raise ess." in verdict(alone, all_series(alone))
    healthy = grouped([run("sgd", 0.1, facts={"n": 1})])
    assert "No check found a problem with these runs." in verdict(healthy, all_series(healthy))
    unknown = grouped([run("sgd", 0.1)])
    assert "No check" not in verdict(unknown, all_series(unknown))


def test_different_data_are_not_compared() -> None:
    series = all_series(grouped([run("sgd", 0.1), run("ivon", 0.1, 0.1)]))
    assert scores_in_words(series, compared=False) == ["The runs use different data, so their scores are not compared."]
