"""Which examples are shown, and what is said of them."""

import base64
import re

import torch

from varlearn.files.png import png
from varlearn.prediction import Predictions, RegressionPredictions
from varlearn.report.example_cards import compared_examples, extreme_examples
from varlearn.report.run_results import RunResults
from varlearn.report.series import all_series, grouped

IMAGE = base64.b64encode(png(torch.zeros(1, 2, 2, dtype=torch.uint8))).decode()


def stored(*numbers: int, **content: object) -> list[dict[str, object]]:
    return [{"index": number, **(content or {"png": IMAGE})} for number in numbers]


def classifier(method: str, right: list[float], **content: object) -> RunResults:
    p, away = torch.tensor(right), torch.tensor([[0.5, 0.5]]).log()
    test = Predictions(torch.stack([p, 1 - p], 1).log(), torch.zeros(len(p)).long(), p, torch.ones(1))
    sets = {"test": stored(*range(len(p)), **content), "noise": stored(0, **content)}
    return RunResults(
        method,
        method,
        predictions={"test/mean": test, "noise/mean": Predictions(away, None, torch.zeros(1), torch.ones(1))},
        analysis={"examples": {"kind": "image", "classes": ["cat", "<dog>"], "sets": sets}},
    )


def test_a_normal_an_ambiguous_and_a_strange_image() -> None:
    runs = [classifier("sgd", [0.8, 0.99, 0.2, 0.5]), classifier("adamw", [0.9, 0.98, 0.9, 0.6])]
    html = compared_examples(all_series(grouped(runs)))
    cards = re.findall(r"<li><h3>(.*?)</h3>(.*?)</dl></li>", html)
    assert [title for title, _ in cards] == ["Normal", "Ambiguous", "Strange: noise"]
    normal, ambiguous, strange = (re.findall(r"<span>([^<]+)</span>", body) for _, body in cards)
    assert normal == ["cat", "99%", "&lt;dog&gt;", "1%", "cat", "98%", "&lt;dog&gt;", "2%"]  # both are right and sure
    assert ambiguous[1] == "50%"  # the largest mean entropy
    assert strange[1] == "50%"
    assert html.count("<img") == 3
    assert 'alt="Normal. It is cat."' in html


def test_without_other_data_or_images_there_is_no_comparison() -> None:
    run = classifier("sgd", [0.8, 0.9])
    inside = {name: found for name, found in run.predictions.items() if name.startswith("test")}
    sets = {"test": stored(0, 1)}
    alone = RunResults("x", "sgd", inside, analysis={"examples": {"kind": "image", "classes": [], "sets": sets}})
    assert compared_examples(all_series(grouped([alone]))) == ""
    assert compared_examples(all_series(grouped([classifier("sgd", [0.8], text="words")]))) == ""
    assert compared_examples([]) == extreme_examples([]) == ""


def test_the_most_uncertain_and_the_worst() -> None:
    html = extreme_examples(all_series(grouped([classifier("sgd", [0.8, 0.99, 0.1, 0.5])])))
    uncertain, worst = html.split("worst test examples")
    assert "Says cat (50%) or &lt;dog&gt; (50%); it is cat. Loss 0.693." in uncertain.partition("</li>")[0]
    assert "Says &lt;dog&gt; (90%) or cat (10%); it is cat. Loss 2.3." in worst.partition("</li>")[0]


def test_texts_and_rows_are_shown_escaped() -> None:
    html = extreme_examples(all_series(grouped([classifier("sgd", [0.8], text="<script>")])))
    assert "<p>&lt;script&gt;</p>" in html
    one = torch.tensor([1.0, 2.0])
    numbers = RegressionPredictions(one, one, one, torch.tensor([1.5, 9.0]), -one, torch.ones(1))
    sets = {"test": stored(0, 1, row=[0.25, -1.0])}
    run = RunResults("x", "sgd", {"test/mean": numbers}, analysis={"examples": {"kind": "table", "sets": sets}})
    html = extreme_examples(all_series(grouped([run])))
    assert "2 ± 2" in html
    rows = extreme_examples(all_series(grouped([classifier("sgd", [0.8], row=[0.25])])))
    assert "<td>cat (80%) or &lt;dog&gt; (20%)</td>" in rows
    assert "0.25, −1" in html


def test_what_is_no_image_is_left_out() -> None:
    html = extreme_examples(all_series(grouped([classifier("sgd", [0.8], png='"><script>')])))
    assert "<img" not in html
    assert "<script" not in html
