"""From a run's configuration to its examples, network and method."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from varlearn import data
from varlearn.data.batches import Batches
from varlearn.data.examples import Examples
from varlearn.methods import Facts, Method, Task, named
from varlearn.models.model_table import MODELS, ModelRow
from varlearn.models.pretrained import pretrained
from varlearn.train.config import Run
from varlearn.train.pretrained_folder import pretrained_folder
from varlearn.train.processes import Processes
from varlearn.train.tasks import MeanVariance, mean_loss, task_of
from varlearn.train.training_parts import TrainingParts

_COMPILATIONS = 8  # of a block: other shapes, with gradients and without


def build_training(run: Run, root: Path | None = None) -> tuple[Examples, Examples | None]:
    """The training examples of a run, and its validation examples where `data.validation` holds some out.

    >>> from varlearn.train.config import Data
    >>> train, validation = build_training(Run(data=Data("digits", subset=30, validation=0.2)))
    >>> len(train), validation and len(validation)
    (24, 6)
    """
    examples = _load(run, "train", root)
    if run.data.subset is not None:
        examples = _first(run, examples)
    return data.hold_out(examples, run.data.validation) if run.data.validation else (examples, None)


def build_examples(run: Run, split: str, root: Path | None = None) -> Examples:
    """One split of the run's data set, cut into tokens as the run says.

    Args:
        run: `data.name`, `data.tokens`, `data.context` and the subsets are read: `data.subset` and then
            `data.validation` for "train" and "validation", `evaluate.subset` for other splits.
        split: "train", "validation" or "test".
        root: where the data are; None for the usual places.

    >>> from varlearn.train.config import Data
    >>> len(build_examples(Run(data=Data("digits", subset=30)), "train"))
    30
    """
    if split in ("train", "validation"):
        train, validation = build_training(run, root)
        if split == "train":
            return train
        if validation is None:
            raise ValueError("data.validation=0 holds no examples out; use e.g. data.validation=0.1")
        return validation
    examples = _load(run, run.data.test if split == "test" else split, root)
    return examples if run.evaluate.subset is None else examples.first(min(run.evaluate.subset, len(examples)))


def _first(run: Run, examples: Examples) -> Examples:
    """The first `data.subset` examples, of more than one class."""
    assert run.data.subset is not None
    if run.data.subset > len(examples):
        raise ValueError(
            f"data.subset={run.data.subset} must be between 1 and the {len(examples)} training examples of "
            f"{run.data.name}; leave it out for all of them"
        )
    chosen = examples.first(run.data.subset)
    if len(examples.classes) > 1 and len(chosen) > 1 and bool((chosen.targets == chosen.targets[0]).all()):
        name = examples.classes[int(chosen.targets[0])]
        raise ValueError(
            f"data.subset={run.data.subset} takes the first examples of {run.data.name}, which are sorted by class and "
            f"are all {name!r} there; leave data.subset out, or give more than the first class"
        )
    return chosen


def _load(run: Run, split: str, root: Path | None) -> Examples:
    wanted: dict[str, Any] = {"tokens": run.data.tokens, "context": run.data.context}
    if run.data.tokens == "model":
        wanted["pretrained"] = pretrained_folder(run.model.path)
    options = {key: value for key, value in wanted.items() if key in data.options_of(run.data.name)}
    return data.load(run.data.name, split, root, **options)


def build_ood(run: Run, name: str, test: Examples, root: Path | None = None) -> Examples:
    """The test split of an out-of-domain set of images, normalised as the run says.

    Args:
        run: `evaluate.subset` is read, no more examples than that, and `data.ood_own_statistics`.
        name: of the set.
        test: the run's own test examples.
        root: where the data are.
    """
    if test.kind != "image":
        raise ValueError(f"data.ood={run.data.ood} is for images; leave it empty for {run.data.name} ({test.kind})")
    examples = data.load(name, "test", root)
    if run.evaluate.subset is not None:
        examples = examples.first(min(run.evaluate.subset, len(examples)))
    return examples if run.data.ood_own_statistics else replace(examples, mean=test.mean, std=test.std)


def build_batches(
    run: Run, examples: Examples, *, train: bool, rank: int = 0, world: int = 1, ids: bool | Tensor = False
) -> Batches:
    """The examples in the run's batches: shuffled and augmented for training, in their order otherwise.

    >>> import torch
    >>> examples = Examples(torch.zeros(120, 1), torch.zeros(120), (), "table")
    >>> len(build_batches(Run(), examples, train=True))  # 50, 50 and 20
    3
    """
    return Batches(
        examples,
        run.data.batch_size if train else run.data.eval_batch_size,
        seed=run.seed,
        shuffle=train,
        augment=train and run.data.augment,
        context=run.data.context if examples.kind == "tokens" else None,
        rank=rank,
        world=world,
        ids=ids,
    )


def build_model(run: Run, examples: Examples) -> nn.Module:
    """The run's network for these examples, as its method prepares it.

    The weights are drawn from torch's global generator.

    >>> import torch
    >>> from varlearn.train.config import Model
    >>> examples = Examples(torch.zeros(2, 3), torch.tensor([0, 1]), ("a", "b"), "table")
    >>> net = build_model(Run(model=Model("mlp", classes=2, hidden=(4,))), examples)
    >>> sum(p.numel() for p in net.parameters())  # 3 * 4 + 4 + 4 * 2 + 2
    26
    """
    return build_method(run).prepare(_network(run, examples))


def _network(run: Run, examples: Examples) -> nn.Module:
    name, classes, task = run.model.name, run.model.classes, task_of(examples)
    if task == "classification" and classes != len(examples.classes):
        raise ValueError(
            f"model.classes={classes} must be the {len(examples.classes)} classes of {run.data.name}; "
            f"use model.classes={len(examples.classes)}"
        )
    readers = [known for known, row in MODELS.items() if _reads(row, examples.kind, task)]
    if name not in readers:
        raise ValueError(
            f"model.name={name!r} does not read data.name={run.data.name!r} ({examples.kind}, {task}); use one of "
            f"{sorted(readers)}"
        )
    if name == "pretrained":
        if run.data.tokens != "model":
            raise ValueError(f"data.tokens={run.data.tokens!r} must be 'model' for model.name='pretrained'")
        regression = task == "regression"
        folder = pretrained_folder(run.model.path)
        return pretrained(folder, 1 if regression else classes, run.model.head_dropout, regression)
    # A vocabulary to predict from is filled up to a multiple of 64, which matrix products prefer.
    vocab = math.ceil(examples.vocab / 64) * 64 if task == "language" else examples.vocab
    known = {"classes": classes, "hidden": run.model.hidden, "vocab": vocab, "context": run.data.context}
    if examples.kind in ("image", "table"):
        shape = examples.inputs.shape[1:]
        known |= {"channels": shape[0], "inputs": math.prod(shape), "outputs": 2 if task == "regression" else classes}
    network = MODELS[name].build(known)
    if task != "regression":
        return network
    layers = network if isinstance(network, nn.Sequential) else [network]  # its weights keep their names
    return nn.Sequential(*layers, MeanVariance())


@torch.no_grad()
def check_reads(run: Run, model: nn.Module, batches: Batches) -> None:
    """Refuse a network that cannot compute the first example, e.g. an image with another number of channels.

    Args:
        run: for the names in the message.
        model: the network; its modes are as before afterwards.
        batches: examples of the run.
    """
    if run.model.compile:  # takes minutes, and would be done for another shape than training has
        return
    modes = {module: module.training for module in model.modules()}
    inputs, _ = next(iter(batches))
    device = next(model.parameters()).device
    try:
        model.eval()(inputs[:1].to(device))
    except (RuntimeError, ValueError, IndexError) as error:
        what = str(error).splitlines()[0]
        raise ValueError(
            f"model.name={run.model.name!r} cannot compute the inputs of data.name={run.data.name!r}, of shape "
            f"{tuple(inputs.shape[1:])}: {what}; choose another network"
        ) from error
    finally:
        for module, mode in modes.items():
            module.training = mode


def _reads(row: ModelRow, kind: str, task: Task) -> bool:
    return kind in row.reads and (task != "regression" or "outputs" in row.takes)


def build_parts(run: Run, examples: Examples, processes: Processes, held_out: Examples | None = None) -> TrainingParts:
    """What the training of a run is made of.

    Args:
        run: the configuration.
        examples: to learn from.
        processes: this process among its peers.
        held_out: validation examples.
    """
    task = task_of(examples)
    batches = build_batches(run, examples, train=True, rank=processes.rank, world=processes.world)
    terms = run.data.context if task == "language" else 1  # of the loss, per example
    facts = Facts(
        n=len(examples),
        batch_size=run.data.batch_size * terms * run.train.accumulate * processes.world,
        steps=run.train.steps or max(1, run.train.epochs * len(batches) // run.train.accumulate),
        task=task,
        seed=run.seed,
        max_grad_norm=run.train.max_grad_norm,
        held_out=0 if held_out is None else len(held_out),
    )
    method, model = build_method(run), build_model(run, examples).to(processes.device)
    if run.model.compile:
        compile_in_place(model)
    plain = build_batches(run, examples, train=False)
    validation = None if held_out is None else build_batches(run, held_out, train=False)
    return TrainingParts(model, method, facts, run.train, batches, plain, partial(mean_loss, task), validation)


def build_method(run: Run) -> Method[Any]:
    """The run's method, at its beginning.

    >>> build_method(Run()).label
    'VAdamW'
    """
    return named(run.optim.name)(run.optim)


def compile_in_place(model: nn.Module) -> None:
    """Compile a network block by block where it has blocks, since few of them differ; names of weights stay.

    Blocks of one class share their code, and PyTorch counts by code how often it compiles before it gives up: eight
    times, which a network whose blocks have three shapes, in training and in evaluation with two sizes of batches,
    exceeds. The limit is raised to eight for each block.
    """
    parts = list(getattr(model, "blocks", [model]))
    config = importlib.import_module("torch._dynamo.config")  # takes a second: not at the top
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, limit, max(getattr(config, limit), _COMPILATIONS * len(parts)))
    for part in parts:
        part.compile(dynamic=False)
