"""The commands, each in its module, which is imported when the command is run: `varlearn --help` needs no torch."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from cyclopts import App, Parameter

HELP = """Variational learning as ordinary as AdamW: train, predict, score, and reproduce the paper.

A first run:  varlearn demo

One row of the paper's tables on two cores:  varlearn train cifar10-resnet20-ivon --out runs/ivon

Every command takes --debug, which adds the traceback to an error.
Exit codes: 0 done, 1 error, 2 wrong use, 3 cannot write, 4 loss not finite, 130 Ctrl-C, 143 SIGTERM.
"""


def _version() -> str:
    try:
        return version("varlearn")
    except PackageNotFoundError:
        return "unknown (not installed)"


def _same(name: str) -> str:
    return name


app = App(
    name="varlearn",
    help=HELP,
    version=_version,
    default_parameter=Parameter(name_transform=_same, negative_iterable=()),
    help_format="plaintext",
)
app.command("varlearn.cli.listing:list_recipes", name="list", help="Show the recipes, their sizes and their data.")
app.command("varlearn.cli.train:train", name="train", help="Train, predict and score a recipe.")
app.command("varlearn.cli.stages:predict", name="predict", help="Predict the test set again with a trained posterior.")
app.command("varlearn.cli.stages:score", name="score", help="Score the predictions of a run again.")
app.command("varlearn.cli.stages:report", name="report", help="Make a page and figures from finished runs.")
app.command(
    "varlearn.cli.reproduce:reproduce", name="reproduce", help="Repeat a table of the paper beside its figures."
)
app.command("varlearn.cli.demo:demo", name="demo", help="AdamW, SGD and IVON on small digits, in two minutes.")
