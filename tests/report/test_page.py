"""HTML."""

from varlearn.report.page import Cell, Section, figure, figures, folded, legend, page, table


def test_words_are_escaped_everywhere() -> None:
    bad = "<script>alert('&')</script>"
    cell = Cell(bad, bad, best=True, color=0)
    html = page(
        bad,
        bad,
        "",
        [
            Section(bad, table([bad, bad], [[cell, cell]], bad)),
            Section(bad, figures([figure(bad, "<svg></svg>", bad, legend=legend([(bad, 0, 0), (bad, None, 1)]))])),
            Section(bad, folded({bad: {bad: bad}})),
        ],
        bad,
    )
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 25
    assert "<svg></svg>" in html


def test_empty_sections_are_left_out() -> None:
    html = page("t", "", "", [Section("none", ""), Section("some", "<p>x</p>")])
    assert "none" not in html.partition("<body>")[2]
    assert html.count("<h2") == 1
    assert '<a href="#part1">some</a>' in html
    assert figures(["", ""]) == ""


def test_a_table_names_its_rows_and_columns() -> None:
    html = table(["method", "NLL"], [[Cell("SGD", color=2), Cell("0.5", bar=0.25, color=2)]], "scores")
    assert '<th scope="col">method</th><th scope="col" class="number">NLL</th>' in html
    assert '<th scope="row">' in html
    assert "<caption>scores</caption>" in html
    assert 'tabindex="0"' in html  # a wide table can be scrolled by keyboard
    assert 'style="width:25%"' in html


def test_two_or_four_figures_share_the_width() -> None:
    one = figure("t", "", "")
    assert ["two" in figures([one] * count).partition("\n")[0] for count in (1, 2, 3, 4)] == [False, True, False, True]
