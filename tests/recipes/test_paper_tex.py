"""The figures in `paper` and `paper_comparisons` against the tables of the paper's source, where it is at hand."""

import re
from pathlib import Path

import pytest

from varlearn.recipes import paper, paper_comparisons
from varlearn.recipes.paper import Figures

TEX = Path(__file__).parents[2].parent / "shared" / "paper" / "ivon-paper.tex"
pytestmark = pytest.mark.skipif(not TEX.exists(), reason="needs the source of the paper beside the repository")
PAIR = re.compile(r"(\d+\.?\d*)\}?_\{\\pm (\d+\.\d+)")
NUMBER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(?![\w.])")


def rows(label: str) -> list[str]:
    """The lines of the table with this label, or words of its caption, without its head."""
    text = TEX.read_text(encoding="utf-8")
    tables = [one for one in re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", text, re.DOTALL) if label in one]
    assert len(tables) == 1, label
    body = (
        tables[0].split(r"\midrule", 1)[1].split(r"\end{tabular}\n" if "multirow" in tables[0] else r"\bottomrule")[0]
    )
    return body.split("\\\\")


def pairs(label: str) -> list[list[tuple[float, float]]]:
    """Mean and standard deviation of each cell, row by row."""
    found = [[(float(mean), float(std)) for mean, std in PAIR.findall(row)] for row in rows(label)]
    return [row for row in found if row]


def numbers(label: str, least: int) -> list[list[float]]:
    """The plain numbers of each row that has at least so many."""
    plain = [
        re.sub(r"\\cellcolor\S*|\\rowcolor\S*|\([^)]*\)|\\multicolumn\{\d\}|\\hskip \S+", "", row)
        for row in rows(label)
    ]
    found = [[float(word) for word in NUMBER.findall(row)] for row in plain]
    return [row for row in found if len(row) >= least]


def ours(figures: Figures, leave_out: tuple[str, ...] = ()) -> list[list[tuple[float, float | None]]]:
    return [[(one.mean, one.std) for key, one in row.items() if key not in leave_out] for row in figures.values()]


@pytest.mark.parametrize(
    ("data", "label"),
    [
        ("cifar10", "tab:resnets:cifar10}"),
        ("cifar100", "tab:resnets:cifar100}"),
        ("tinyimagenet", "tab:resnets:tinyimagenet}"),
    ],
)
def test_tables_9_to_11(data: str, label: str) -> None:
    mine = {names: row for names, row in paper.images().items() if names[0] == data}
    assert len(mine) == 20
    assert sorted(ours(mine)) == sorted(pairs(rf"\label{{{label}"))  # type: ignore[type-var]


def test_table_1_has_imagenet_and_repeats_rows_of_the_others() -> None:
    printed = pairs("tab:imagenet")
    mine = ours(paper.images())
    assert len(printed) == 20
    assert printed[:4] == ours({names: row for names, row in paper.images().items() if names[0] == "imagenet"})
    assert all(row in mine for row in printed)


@pytest.mark.parametrize(
    ("label", "figures"),
    [
        ("tab:bdl-indomain", ours(paper_comparisons.in_domain())),
        ("fig:sensitivity-ood", ours(paper.ood())),
        ("tab:hessabl", ours(paper.hess_init())),
        ("tab:rnn_classification}\n\\end", ours(paper.gru())),
        ("tab:ablation-ivon-hess", ours(paper_comparisons.estimators(), ("memory",))),
    ],
)
def test_tables_with_deviations(label: str, figures: list[list[tuple[float, float]]]) -> None:
    assert pairs(label) == figures


def test_memory_of_the_estimators() -> None:
    printed = [float(word) for row in rows("tab:ablation-ivon-hess") for word in re.findall(r"(\d+)MB", row)]
    assert printed == [row["memory"].mean for row in paper_comparisons.estimators().values()]


@pytest.mark.parametrize(
    ("label", "figures", "names"),
    [
        ("tab:glue_avg", paper_comparisons.glue(), 0),
        ("tab:merging", paper_comparisons.merging(), 0),
        ("tab:bdlchallenge", paper_comparisons.competition(), 0),
    ],
)
def test_tables_without_deviations(label: str, figures: Figures, names: int) -> None:
    width = len(next(iter(figures.values())))
    printed = [row[-width:] for row in numbers(label, width)]
    assert printed == [[one.mean for one in row.values()] for row in figures.values()]


def test_cost() -> None:
    text = " ".join(rows("tab:runtime"))
    figures = paper_comparisons.cost()
    for model, printed in (("resnet20", "ResNet-20"), ("gpt2-125m", "GPT-2 (125M)"), ("gpt2-355m", "GPT-2 (355M)")):
        row = text.split(printed)[1].split("GPT-2")[0]
        cells = [float(word) for word in NUMBER.findall(row)]
        mine = [one for names, one in figures.items() if names[0] == model]
        assert cells == [one["hours"].mean for one in mine] + [one["memory"].mean for one in mine], model


def test_sizes_of_glue() -> None:
    text = TEX.read_text(encoding="utf-8")
    for place, key in enumerate((r"\#Train &", r"\#Validation &")):
        line = text.split(key)[1].split("\\\\")[0]
        assert [word.strip() for word in line.split("&")] == [
            one[place] for one in paper_comparisons.GLUE_SIZES.values()
        ]


def test_accuracies_of_the_leave_one_out_runs() -> None:
    text = TEX.read_text(encoding="utf-8")
    for value in (r"93.68\%", r"93.52\%", r"74.7\%", r"accuracy of $75\%$".replace("accuracy of ", "")):
        assert value in text
