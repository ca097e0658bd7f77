"""Mean, spread and the best of each column."""

import re

from varlearn.report.run_results import RunResults
from varlearn.report.score_table import outside_table, score_tables
from varlearn.report.series import all_series, grouped


def runs() -> list[RunResults]:
    found = []
    for method, nlls, accuracy in (("adamw", (0.30, 0.20), 0.9), ("sgd", (0.10, 0.20), 0.9)):
        for seed, nll in enumerate(nlls):
            away = {"noise": {"auroc": nll, "fpr95": 0.5}}
            scores = {"nll": nll, "accuracy": accuracy, "coverage90": 0.5 + nll, "ood": away}
            metrics = {"mean": scores, "validation": {"mean": {"nll": 2 * nll}}, "temperature": None}
            found.append(RunResults(f"{method}{seed}", method, metrics=metrics))
    return found


def rows(html: str) -> list[list[str]]:
    return [re.sub("<[^>]*>", "|", line).split("|") for line in re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", html)]


def cells(html: str) -> list[list[str]]:
    return [[cell.strip() for cell in row if cell.strip()] for row in rows(html)]


def test_mean_spread_and_best() -> None:
    html = score_tables(all_series(grouped(runs())))
    test, _, validation = html.partition("Scores on validation data")
    adamw, sgd = cells(test)
    assert adamw == ["AdamW", "0.2500", "± 0.0707", "90.00", "(best)", "± 0.00", "75.0", "± 7.1"]
    assert sgd == ["SGD", "0.1500", "(best)", "± 0.0707", "90.00", "(best)", "± 0.00", "65.0", "± 7.1"]  # a tie
    assert [row[1] for row in cells(validation)] == ["0.5000", "0.3000"]
    assert "over 2 seeds" in test


def test_the_scores_that_few_ask_for_are_folded() -> None:
    scores = {"nll": 0.1, "accuracy": 0.9, "scaled_nll": 0.1, "top5_accuracy": 1.0, "matthews": 0.8}
    html = score_tables(all_series(grouped([RunResults("new", "sgd", metrics={"mean": scores})])))
    shown, _, folded = html.partition("<details><summary>Further scores</summary>")
    assert "accuracy %" in shown
    assert "top-5" not in shown
    assert all(words in folded for words in ("NLL at its best temperature", "top-5 accuracy %", "Matthews"))
    few = RunResults("new", "sgd", metrics={"mean": {"nll": 0.1}})
    assert "Further" not in score_tables(all_series(grouped([few])))


def test_another_split_than_the_test_set_is_named() -> None:
    dev = RunResults("new", "sgd", metrics={"mean": {"nll": 0.1}}, config={"data": {"name": "rte", "test": "dev"}})
    assert "Scores on dev data." in score_tables(all_series(grouped([dev])))
    odd = RunResults("new", "sgd", metrics={"mean": {"nll": 0.1}}, config={"data": {"test": ["<b>"]}})
    assert "<b>" not in score_tables(all_series(grouped([odd])))


def test_one_row_is_not_the_best_of_itself_and_different_data_are_not_compared() -> None:
    series = all_series(grouped(runs()))
    assert "(best)" not in score_tables(series[:1])
    assert "(best)" not in score_tables(series, compared=False)
    assert score_tables(all_series(grouped([RunResults("new", "sgd")]))) == ""


def test_a_larger_auroc_and_a_smaller_rate_are_better() -> None:
    adamw, sgd = cells(outside_table(all_series(grouped(runs()))))
    assert adamw[1:4] == ["25.00", "(best)", "± 7.07"]
    assert "(best)" not in sgd[1:3]
    assert outside_table([]) == ""
