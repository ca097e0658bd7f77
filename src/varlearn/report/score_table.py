"""Tables of scores: mean and spread over seeds, the best marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from varlearn.report.page import Cell, table
from varlearn.report.series import Series, mean_and_spread

Title = tuple[str, int, float, bool | None]
"""(title, digits, factor, whether larger is better; None where neither end is)."""

TITLES: dict[str, Title] = {
    "nll": ("NLL", 4, 1.0, False),
    "accuracy": ("accuracy %", 2, 100.0, True),
    "perplexity": ("perplexity", 3, 1.0, False),
    "rmse": ("RMSE", 4, 1.0, False),
    "ece": ("ECE, 20 bins", 4, 1.0, False),
    "brier": ("Brier", 4, 1.0, False),
    "crps": ("CRPS", 4, 1.0, False),
    "coverage90": ("90% intervals cover %", 1, 100.0, None),
    "auroc": ("AUROC of mistakes", 4, 1.0, True),
}
FURTHER: dict[str, Title] = {
    "scaled_nll": ("NLL at its best temperature", 4, 1.0, False),
    "aurc": ("AURC", 4, 1.0, False),
    "top5_accuracy": ("top-5 accuracy %", 2, 100.0, True),
    "f1": ("F1 %", 2, 100.0, True),
    "matthews": ("Matthews", 4, 1.0, True),
    "pearson": ("Pearson", 4, 1.0, True),
    "spearman": ("Spearman", 4, 1.0, True),
}
OUTSIDE: dict[str, Title] = {
    "auroc": ("AUROC %", 2, 100.0, True),
    "fpr95": ("FPR % at 95% TPR", 2, 100.0, False),
}


def score_tables(series: Sequence[Series], *, compared: bool = True) -> str:
    """Tables of the test set and of validation data, as far as there are such scores; further scores are folded.

    Args:
        series: a row each.
        compared: whether the rows are about the same data, so that one can be the best.
    """
    seeds = {len(one.group.runs) for one in series}
    spread = "" if seeds <= {1} else f" Mean ± standard deviation over {_range(seeds)} seeds."
    best = " ★ marks the best of each column." if compared and len(series) > 1 else ""
    about = {
        "test": f"Scores on {tested_on(series)}.{spread}{best}",
        "validation": f"Scores on validation data.{_temperatures(series)}",
    }
    html = ""
    for split, caption in about.items():
        first, rest = (
            _table(series, {(key,): title for key, title in titles.items()}, words, compared, split=split)
            for titles, words in ((TITLES, caption), (FURTHER, caption.partition(".")[0] + "."))
        )
        html += first + (f"<details><summary>Further scores</summary>{rest}</details>" if rest else "")
    return html


def tested_on(series: Sequence[Series]) -> str:
    """The data that the scores are about, in words: the test set, unless the runs name another split."""
    splits = [run.config.get("data", {}).get("test", "test") for one in series for run in one.group.runs]
    names = dict.fromkeys(map(str, splits))
    return "the test set" if list(names) in ([], ["test"]) else f"{' and '.join(names)} data"


def outside_table(series: Sequence[Series], *, compared: bool = True) -> str:
    """How well the largest probability tells test examples from those of each set out of the domain."""
    names = dict.fromkeys(name for one in series for run in one.group.runs for name in _outside(run.metrics))
    keys = {
        ("ood", name, key): (f"{name}: {title}", *rest) for name in names for key, (title, *rest) in OUTSIDE.items()
    }
    caption = (
        "Other data, told from the test set by the largest probability. AUROC: the share of pairs in which the test "
        "example gets the larger one. FPR: other examples that are accepted if 95% of the test examples are."
    )
    return _table(series, keys, caption, compared)  # type: ignore[arg-type]


def _table(
    series: Sequence[Series], keys: Mapping[tuple[str, ...], Title], caption: str, compared: bool, split: str = "test"
) -> str:
    means = {
        key: {one: mean_and_spread(found) for one in series if (found := one.values(*key, split=split))} for key in keys
    }
    known = [key for key in keys if means[key]]
    rows = []
    for one in series:
        if any(one in means[key] for key in known):
            cells = [_cell(one, means[key], keys[key], compared) for key in known]
            rows.append([Cell(one.label, color=one.color, dash=one.dash), *cells])
    return table(["method", *(keys[key][0] for key in known)], rows, caption) if rows else ""


def _cell(
    one: Series,
    means: dict[Series, tuple[float, float | None]],
    title: Title,
    compared: bool,
) -> Cell:
    _, digits, factor, larger = title
    if one not in means:
        return Cell("–")
    mean, spread = means[one]
    best = None
    if larger is not None and compared and len(means) > 1:
        best = (max if larger else min)(value for value, _ in means.values())
    # Rows that read the same are equally good.
    marked = best is not None and f"{factor * mean:.{digits}f}" == f"{factor * best:.{digits}f}"
    text = f"{factor * mean:.{digits}f}"
    return Cell(text, "" if spread is None else f"± {factor * spread:.{digits}f}", best=marked)


def _outside(metrics: object) -> list[str]:
    """Names of the data sets out of the domain in `metrics.json`."""
    parts = metrics.values() if hasattr(metrics, "values") else ()  # type: ignore[union-attr]
    return [name for part in parts if isinstance(part, dict) for name in part.get("ood", {})]


def _temperatures(series: Sequence[Series]) -> str:
    fitted = []
    for group in dict.fromkeys(one.group for one in series):
        found = [run.metrics.get("temperature") for run in group.runs]
        known = [f"{value:.3g}" for value in found if isinstance(value, (int, float))]
        if known:
            fitted.append(f"{group.label} {', '.join(known)}")
    return f" Temperature of the posterior, fitted to them: {'; '.join(fitted)}." if fitted else ""


def _range(counts: set[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
