"""The commands, each in its module, which is imported when the command is run: `varlearn --help` needs no torch."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_args

from cyclopts import App, ArgumentCollection, CoercionError, Parameter

from varlearn.cli.show import Screen

HELP = """Variational learning as ordinary as AdamW: train, predict, score, and reproduce the paper.

- See what it is about: varlearn demo
- A first run, in seconds: varlearn train digits-ivon
- A row of the paper's tables, in minutes: varlearn train cifar10-resnet20-ivon --out runs/ivon

Every command takes --debug, which adds the traceback to an error.

Exit codes: 0 done, 1 error, 2 wrong use, 3 cannot write, 4 loss not finite, 130 Ctrl-C, 143 SIGTERM.
"""

TRAIN = """Train a recipe, predict, and score.

A file given with --config changes the settings of the recipe, and flags change both. --lr is short for --optim.lr, and
so on. A change affects nothing else: after another --data.subset or --train.epochs, IVON's ess and beta2 are still
those of the recipe. Only --epochs takes the place of a recipe's number of steps. "none" is a value: --data.subset none
takes all examples.

At the end the test set is predicted at the mean and averaged over the posterior, and advice is printed if something is
wrong. Ctrl-C saves; varlearn train --resume --out FOLDER goes on with the same settings.

Several devices or processes:  torchrun --nproc-per-node 8 -m varlearn train ...
"""
PREDICT = """Predict inputs of your own, or the test set again.

- varlearn predict runs/x --input table.csv --samples 64

Without --input it reads posterior.safetensors and writes predictions.safetensors.
"""
SCORE = """Score the predictions of a run again.

Reads predictions.safetensors, writes metrics.json and advice.json.
"""
ENSEMBLE = """Make one run of several finished ones: a deep ensemble, Multi-IVON, or any mixture.

- varlearn ensemble runs/a runs/b runs/c --out runs/abc
- varlearn ensemble runs/a runs/b runs/c --weights validation --out runs/abc

Members must have the same network and data; their methods may differ. The result predicts, scores and reports as every
run does. The same command goes on where it stopped.
"""
EXPORT = """Write a finetuned network for Hugging Face's from_pretrained.

The folder has the network at the posterior's mean, its tokenizer, and posterior.safetensors. It is what --model.path of
another run may be.
"""
REPORT = """Make a page and figures from finished runs.

Writes report.html, which needs nothing but a browser, and the figures as PNG and SVG.
"""
SENSITIVITY = """Compute how sensitive a run is to each of its training examples.

Estimates how predictions would change if an example had been left out, without training again. Writes
sensitivity.safetensors and sensitivity.csv: ids, labels, scores, and the leave-one-out probability of the given label,
which is small for a wrong label.
"""
EXAMPLES = """Show the training examples that a run is most and least sensitive to.

Writes gallery.html, which needs nothing but a browser, and gallery.png, with label, prediction and score of each.
"""
REPRODUCE = """Repeat a table or figure of the paper, beside its numbers.

Prints mean and standard deviation over seeds. Finished runs are kept and unfinished ones resumed, so the same command
goes on where it stopped. A run that fails does not stop the others. Results go to results.json in the folder.
"""
DEMO = """Compare AdamW, SGD and variational AdamW on small digits.

About a minute on a free core; what is trained already is not trained again.
"""
LIST = """Show the recipes in groups.

With the name of a group its recipes, with the name of a recipe its settings.
"""
SWEEP = """Try settings, and keep the best on validation data.

Give several values to any setting of train, separated by commas. Every combination is a run in its own folder:

- varlearn sweep digits-ivon --optim.lr 0.3,1 --optim.ess 3000,10000

With --trials, Optuna proposes that many combinations, each from the results so far, and values may be ranges:

- varlearn sweep digits-ivon --optim.lr 0.01:3 --trials 20

The best has the lowest NLL on validation data, mean over seeds; with --by loo the lowest leave-one-out loss of the
training examples, and none are held out. A tenth of the training data is held out unless the
recipe or --data.validation says otherwise. The same command goes on where it stopped. It writes sweep.json, and
best.json, which varlearn train takes in the place of a recipe.
"""
PREPARE = """Prepare data that are too large to be read whole.

- GPT-2's corpus: varlearn prepare openwebtext downloads/openwebtext
- ImageNet: varlearn prepare imagenet downloads/imagenet

Several processes work at it. After Ctrl-C, or when a full disk has room again, the same command goes on.
"""
PREPARE_OPENWEBTEXT = """Encode a text corpus in GPT-2's tokens, as train.bin and test.bin.

Reads .txt, .jsonl and .parquet files and .tar archives of .txt files, of one corpus of yours or OpenWebText's own, also
compressed with gzip or xz. Nothing is downloaded but GPT-2's list of merges. Each file is read as a stream.

Run it again to compare the finished files with their checksums.
"""
PREPARE_IMAGENET = """Pack folders of images into shards, as WebDataset does.

Reads the images in train/CLASS and val/CLASS, a folder for each class. Writes .tar files of some thousand images, with
an index, so that reading takes no search for files. varlearn train reads folders too, without this command.

Run it again to compare the finished shards with their checksums.
"""
MERGE = """Merge finetuned models in files.

- varlearn merge --base B --model A --model C --method hessian --out O

Models are folders as Hugging Face writes them, LoRA adapters, runs, or posterior files. The curvature for the methods
hessian and fisher is read from posterior.safetensors in each folder. Memory holds a part of one tensor of each model. A
merge that was killed goes on where it stopped. The result loads with from_pretrained.
"""
DOCTOR = """Check this machine: devices, compilers, engines.

Compares the kernels with the reference on every device, and says what to do about each finding. The exit code is 1 if
something is there and does not work.
"""
COMPLETION = """Print completions for bash, zsh or fish.

- bash: varlearn completion bash > ~/.local/share/bash-completion/completions/varlearn
- zsh: varlearn completion zsh > ~/.zfunc/_varlearn, with fpath+=~/.zfunc before compinit in ~/.zshrc
- fish: varlearn completion fish > ~/.config/fish/completions/varlearn.fish
"""


def _version() -> str:
    try:
        return version("varlearn")
    except PackageNotFoundError:
        return "unknown (not installed)"


def _same(name: str) -> str:
    return name


def _refuse_fractions(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Refuse 1.5 for a whole number, which cyclopts would round."""
    for argument in arguments:
        kinds: tuple[Any, ...] = get_args(argument.hint) or (argument.hint,)
        if int in kinds and float not in kinds:
            for token in argument.tokens:
                if "." in token.value:
                    raise CoercionError(argument=argument, token=token, target_type=int)


app = App(
    name="varlearn",
    config=_refuse_fractions,
    help=HELP,
    version=_version,
    default_parameter=Parameter(name_transform=_same, negative_iterable=()),
    help_format="markdown",
    console=Screen(),
)
app.command("varlearn.cli.listing:list_recipes", name="list", help=LIST)
app.command("varlearn.cli.train_command:train", name="train", help=TRAIN)
app.command("varlearn.cli.sweep_command:sweep", name="sweep", help=SWEEP)
app.command("varlearn.cli.stages:predict", name="predict", help=PREDICT)
app.command("varlearn.cli.stages:score", name="score", help=SCORE)
app.command("varlearn.cli.ensemble_command:ensemble", name="ensemble", help=ENSEMBLE)
app.command("varlearn.cli.stages:export", name="export", help=EXPORT)
app.command("varlearn.cli.stages:report", name="report", help=REPORT)
app.command("varlearn.cli.sensitivity_commands:sensitivity", name="sensitivity", help=SENSITIVITY)
app.command("varlearn.cli.sensitivity_commands:examples", name="examples", help=EXAMPLES)
app.command("varlearn.cli.reproduce_command:reproduce", name="reproduce", help=REPRODUCE)
app.command("varlearn.cli.demo_command:demo", name="demo", help=DEMO)
prepare = App(
    name="prepare",
    help=PREPARE,
    default_parameter=Parameter(name_transform=_same, negative_iterable=()),
    help_format="markdown",
)
prepare.command("varlearn.cli.prepare_command:openwebtext", name="openwebtext", help=PREPARE_OPENWEBTEXT)
prepare.command("varlearn.cli.prepare_command:imagenet", name="imagenet", help=PREPARE_IMAGENET)
app.command(prepare)
app.command("varlearn.cli.merge_command:merge_app", name="merge", help=MERGE)
app.command("varlearn.cli.doctor_command:doctor", name="doctor", help=DOCTOR)
app.command("varlearn.cli.completion:completion", name="completion", help=COMPLETION)
