"""The commands, each in its module, which is imported when the command is run: `varlearn --help` needs no torch."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from cyclopts import App, Parameter

from varlearn.cli.show import Screen

HELP = """Variational learning as ordinary as AdamW: train, predict, score, and reproduce the paper.

- A first run: varlearn demo
- A row of the paper's tables on two cores: varlearn train cifar10-resnet20-ivon --out runs/ivon

Every command takes --debug, which adds the traceback to an error.

Exit codes: 0 done, 1 error, 2 wrong use, 3 cannot write, 4 loss not finite, 130 Ctrl-C, 143 SIGTERM.
"""

TRAIN = """Train a recipe, predict, and score.

What a recipe sets, a file given with --config may change, and a flag such as --optim.lr has the last word. Nothing
else follows from a change: after another --data.subset or --train.epochs, IVON's ess and beta2 are still those of the
recipe. "none" is a value: --data.subset none takes all examples.

The test set is predicted at the mean and averaged over the posterior. Ctrl-C saves; --resume goes on.

Several devices or processes:  torchrun --nproc-per-node 8 -m varlearn train ...
"""
PREDICT = """Predict the test set again with a trained posterior.

Reads posterior.safetensors, writes predictions.safetensors.
"""
SCORE = """Score the predictions of a run again.

Reads predictions.safetensors, writes metrics.json.
"""
REPORT = """Make a page and figures from finished runs.

Writes report.html, which needs nothing but a browser, and the figures as PNG and SVG.
"""
REPRODUCE = """Repeat a table of the paper, beside its figures.

Prints mean and standard deviation over seeds. Finished runs are kept and unfinished ones resumed, so the same command
goes on where it stopped. A run that fails does not stop the others. Results go to results.json in the folder.
"""
DEMO = """Compare AdamW, SGD and IVON on small digits.

About two minutes on two cores; what is trained already is not trained again.
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
    help_format="markdown",
    console=Screen(),
)
app.command("varlearn.cli.listing:list_recipes", name="list", help="Show the recipes, their sizes and their data.")
app.command("varlearn.cli.train_command:train", name="train", help=TRAIN)
app.command("varlearn.cli.stages:predict", name="predict", help=PREDICT)
app.command("varlearn.cli.stages:score", name="score", help=SCORE)
app.command("varlearn.cli.stages:report", name="report", help=REPORT)
app.command("varlearn.cli.reproduce_command:reproduce", name="reproduce", help=REPRODUCE)
app.command("varlearn.cli.demo_command:demo", name="demo", help=DEMO)
