"""Tables 2 and 3: Bayesian methods under one protocol, in and out of domain, each beside the paper's figures."""

from __future__ import annotations

from varlearn.methods import named
from varlearn.recipes import paper, paper_comparisons
from varlearn.recipes.bayesian_comparison import comparison, methods
from varlearn.recipes.paper import Published
from varlearn.recipes.scales import Scale
from varlearn.recipes.tables import ACCURACY, UNCERTAINTY, Line, Metric, Table
from varlearn.train.config import Run

ENSEMBLES = (
    "sgd",
    "ivon",
    "swag",
    "mc-dropout",
)  # whose ensembles are lines: deep ensembles, Multi-IVON, Multi-SWAG, ...
MEMBERS = 5

NOTE = (
    "Equal compute: an SGD epoch is one forward and backward pass over the data. The column cost counts them: SAM, "
    "bSAM, AdaHessian and VOGN take two per step, an ensemble of M members M times its method's. Each line names its "
    "passes at test time."
)

COLUMNS = (
    ACCURACY,
    *UNCERTAINTY,
    Metric("scaled_nll", "NLL, scaled"),
    Metric("aurc", "AURC"),
    Metric("dee", "deep-ensemble equivalent", 1.0, 1),
    Metric("cost", "cost, SGD epochs", 1.0, 0),
)
OOD_COLUMNS = tuple(
    Metric(key, title, 100.0, 1)
    for key, title in (
        ("fpr95", "FPR at 95% TPR %"),
        ("fpr95_paper", "the paper's FPR %"),
        ("detection_error", "detection error %"),
        ("auroc", "AUROC %"),
        ("aupr_in", "AUPR-in %"),
        ("aupr_out", "AUPR-out %"),
    )
)


def cost(run: Run, members: int = 1) -> float:
    """Passes over the training data, in SGD epochs.

    >>> cost(comparison("sgd", "paper")), cost(comparison("ivon", "paper"), members=5)
    (200.0, 1000.0)
    """
    return float(run.train.epochs * run.optim.samples * named(run.optim.name).passes * members)


def passes_at_test(run: Run, members: int = 1, at_mean: bool = False) -> int:
    """Forward passes that a prediction takes. The mean of an ensemble of points is the ensemble of their means.

    >>> passes_at_test(comparison("sgd", "paper")), passes_at_test(comparison("ivon", "paper"), members=5)
    (1, 320)
    """
    points = getattr(run.optim, "members", None)  # of a method whose posterior is an ensemble of points
    if points is not None:
        return members * points
    averages = named(run.optim.name).averages and not at_mean
    return members * (run.evaluate.samples if averages else 1)


def in_domain(scale: Scale) -> Table:
    """Table 2, with the methods that the paper lacks, each method's mean, and ensembles."""
    published = {words[2]: figures for words, figures in paper_comparisons.in_domain().items()}
    title = "Table 2: in-domain comparison of Bayesian methods"
    return Table("table2", title, COLUMNS, tuple(_lines(scale, published)), NOTE)


def out_of_domain(scale: Scale) -> Table:
    """Table 3, with TinyImageNet and CIFAR-100 beside SVHN and Flowers102, and the false positive rate both ways.

    The published column FPR@95% is not the false positive rate at 95% (see `paper`).
    """
    published: dict[str, dict[str, dict[str, Published]]] = {}
    for words, figures in paper.ood().items():
        published.setdefault(words[3], {})[_published_as(words[2])] = figures
    lines = []
    for outside in comparison("sgd", scale).data.ood:
        known = published.get(outside.removesuffix("-pack"), {})
        for line in _lines(scale, known):
            if "@" not in line.method:
                words = f"{outside}, {line.detail}"
                path = (*line.path, "ood", outside)
                lines.append(Line(line.data, line.model, line.method, words, line.run, {}, path, line.published,
                                  members=line.members))  # fmt: skip
    return Table("table3", "Table 3: out-of-domain detection", OOD_COLUMNS, tuple(lines), NOTE)


def _published_as(method: str) -> str:
    return {"bbb": "bbb-paper"}.get(method, method)


def _lines(scale: Scale, published: dict[str, dict[str, Published]]) -> list[Line]:
    """Single runs, at the mean and averaged where these differ, then ensembles."""
    lines = []
    for method in methods():
        run = comparison(method, scale)
        averages = named(method).averages
        if averages:
            lines.append(_line(run, f"{method}@mean", 1, {}, ("mean",)))
        lines.append(_line(run, method, 1, published.get(method, {}), ("averaged",)))
    for method in ENSEMBLES:
        if method in methods():
            name = f"{MEMBERS}*{method}"
            run = comparison(method, scale)
            lines.append(_line(run, name, MEMBERS, published.get(name, {}), ("averaged",)))
    return lines


def _line(run: Run, method: str, members: int, published: dict[str, Published], path: tuple[str, ...]) -> Line:
    count = passes_at_test(run, members, method.endswith("@mean"))
    passes = f"{count} test pass{'es' if count > 1 else ''}"
    return Line("cifar10", run.model.name, method, passes, run, {}, path, published, members=members)
