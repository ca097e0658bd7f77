"""HTML."""

from varlearn.report.page import Drawn, figures, page, settings, table


def test_words_are_escaped_everywhere() -> None:
    bad = "<script>alert('&')</script>"
    html = page(
        bad,
        bad,
        [
            (bad, table([bad], [[bad]], bad)),
            (bad, figures([Drawn("<svg></svg>", bad)])),
            (bad, settings({bad: {bad: bad}})),
        ],
    )
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 13
    assert "<figure><svg></svg>" in html
