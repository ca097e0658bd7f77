"""`varlearn.fit`: from a network and a loader to a calibrated posterior, by the library's public parts."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from varlearn.batchnorm import recalibrate_batchnorm
from varlearn.fitting.arrangement import Arrangement, arrange
from varlearn.fitting.batch_share import share_of
from varlearn.fitting.first_look import first_outputs
from varlearn.fitting.fitted import Fitted
from varlearn.fitting.method_settings import chosen_settings
from varlearn.fitting.own_batches import OwnBatches
from varlearn.fitting.own_loss import OwnLoss, growth_with_batch
from varlearn.fitting.posterior_calibration import calibrated
from varlearn.fitting.target_units import GaussianLoss
from varlearn.fitting.task_predictor import TaskPredictor
from varlearn.methods import Facts, Optim, named
from varlearn.prediction.loader_batches import Unpack, device_of, move
from varlearn.setting_checks import whole_number
from varlearn.train.config import Data, Evaluate, Model, Run, Train
from varlearn.train.final_posterior import learned_posterior
from varlearn.train.processes import Processes, processes
from varlearn.train.run_folder import RunFolder
from varlearn.train.run_loop import Measured, RunLoop
from varlearn.train.tasks import guessing_loss, mean_loss
from varlearn.train.training import Training
from varlearn.train.training_parts import Loss, TrainingParts

_log = logging.getLogger("varlearn")
_FIRST = "the first batch of train_loader"
_MOST_BATCHNORM = 2_000  # examples that BatchNorm's statistics are computed from


def fit(
    model: nn.Module,
    train_loader: Iterable[Any],
    epochs: int,
    val_loader: Iterable[Any] | None = None,
    loss: Loss | None = None,
    method: str | Optim = "auto",
    *,
    task: str | None = None,
    lr: float | None = None,
    samples: int = 64,
    seed: int = 0,
    folder: str | Path | None = None,
    resume: bool = False,
    unpack: Unpack | None = None,
    progress: bool | None = None,
) -> Fitted:
    """Train your own network, and get predictions that know how sure they are.

    The learning rate rises over 5% of the steps and falls to 0 on a cosine. Afterwards BatchNorm's statistics are
    recomputed, and the posterior's temperature is fitted to the validation data. A regression is trained on
    standardized targets, with a noise variance that follows its errors. Its noise is estimated from the validation
    data; without them from a tenth of the training data, which is held out for that.

    The call is a thin layer over public parts: with `VAdamW.for_loader`, `warmup_cosine` and `calibrate`, the same
    seeds give the same bits. The caller's random state is not touched. The model has the mean weights afterwards.

    Under `torchrun` the processes divide the batches among themselves, and each returns the same result. Pass the same
    loaders in every process, without a DistributedSampler.

    Args:
        model: any network, with its initial weights, on the device to train on. It returns logits (B, C), values, a
            pair (mean, variance), logits (B, T, V), or an object with `logits`.
        train_loader: any iterable of batches that can be read several times: pairs (inputs, targets), or mappings with
            "labels".
        epochs: passes over it.
        val_loader: held-out data, in the same order in every pass. Do not use the test data.
        loss: from outputs and targets to the mean loss. None for the negative log-likelihood of the task. A regression
            with its own loss is not standardized.
        method: "auto" for variational AdamW with the settings that need no tuning, another name of
            `varlearn.methods.METHODS`, or complete settings.
        task: "classification", "regression" or "language". None decides by outputs and targets.
        lr: peak learning rate; None for the rule's. Give one for pretrained weights, e.g. 1e-4.
        samples: posterior samples per prediction.
        seed: of the order of the data, of dropout and of the samples.
        folder: for log, checkpoints and result; None writes no file.
        resume: go on from the newest checkpoint in `folder`, or begin if there is none.
        unpack: from a batch to (inputs, targets), for loaders of another form.
        progress: False for silence; None or True for a bar in a terminal, and lines elsewhere.

    >>> x = torch.linspace(-1, 1, 100).view(-1, 1)[::7].repeat(4, 1)
    >>> data = [(part, (part[:, 0] > 0).long()) for part in x.split(20)]
    >>> net = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> fitted = fit(net, data, epochs=20, samples=8, progress=False)
    >>> fitted.predict(torch.tensor([[-0.9], [0.9]])).log_probs.argmax(1)
    tensor([0, 1])
    """
    epochs = whole_number("epochs", epochs, 1, "20 is usual for small data")
    samples = whole_number("samples", samples, 1, "64 is usual")
    seed = whole_number("seed", seed, 0, "0, 1, 2 for three runs")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__} and must be a torch.nn.Module, with its initial weights")
    own = None if loss is None else OwnLoss(loss)
    if resume and folder is None:
        raise ValueError("resume=True needs the folder with the checkpoints; pass folder")
    with contextlib.ExitStack() as stack:
        mine = stack.enter_context(processes(device_of(model)))
        stack.enter_context(torch.random.fork_rng([mine.device] if mine.device.type == "cuda" else []))
        torch.manual_seed(seed)
        data = arrange(model, train_loader, val_loader, task=task, seed=seed, unpack=unpack, standardize=loss is None)
        batches = share_of(data.train, mine)
        steps = epochs * len(batches)
        optim = chosen_settings(method, lr, model, data.look.n, steps)
        run = _run(model, data, epochs, steps, optim, Evaluate(samples), seed)
        training = _training(model, data, batches, run, own, mine)
        where = None if folder is None else RunFolder(Path(folder))
        with mine.together():
            if where is not None and mine.writes:
                stack.enter_context(where.opened(run, resume=resume))
        measured = None if data.held_out is None else Measured(data.held_out, "validation")
        about = {"classes": data.look.classes or None, "loss_growth_with_batch": _growth(model, data, own)}
        if data.units is not None:
            about["loss_guessing"] = guessing_loss(data.units.scale)
        loop = RunLoop(run, training, measured, where, about)
        stack.callback(loop.close)
        with contextlib.nullcontext() if data.units is None else data.units.on(model):
            loop.start(resume)
            loop.go(progress, None)
        _recalibrate_batchnorm(training, data)
        predictor = TaskPredictor(data.look, training.method, data.units, unpack=unpack)
        learned, predictor = calibrated(model, learned_posterior(training), predictor, data, samples, seed)
        result = Fitted.measured(training.model, learned, predictor, run, loop.records, data.held_out)
        with mine.together():
            if where is not None and mine.writes:
                result.save(where.out)
                loop.end()
        for finding in result.advice if mine.writes else ():
            _log.warning("%s", finding)
    return result


def _run(
    model: nn.Module, data: Arrangement, epochs: int, steps: int, optim: Optim, evaluate: Evaluate, seed: int
) -> Run:
    """The settings as a run's, for config.json and for checkpoints, which must fit them."""
    return Run(
        recipe="fit",
        seed=seed,
        model=Model(type(model).__name__, max(1, data.look.classes)),
        data=Data("own", batch_size=data.look.batch_size, augment=False),
        optim=optim,
        train=Train(epochs=epochs, log_every=max(1, min(50, steps // 20))),
        evaluate=evaluate,
    )


def _training(
    model: nn.Module, data: Arrangement, batches: OwnBatches, run: Run, loss: Loss | None, mine: Processes
) -> Training:
    found, method = data.look, named(run.optim.name)(run.optim)
    steps = run.train.epochs * len(batches)
    held_out = 0 if data.held_out is None else sum(len(targets) for _, targets in data.held_out)
    facts = Facts(found.n, found.batch_size * mine.world, steps, found.task, run.seed, held_out=held_out)
    if loss is None:
        loss = partial(mean_loss, found.task)
        if found.task == "regression" and not found.has_variance:
            outputs = first_outputs(model, next(iter(data.train))[0], _FIRST)
            assert isinstance(outputs, torch.Tensor)
            loss = GaussianLoss(outputs.shape[1:] if outputs[0].numel() > 1 else ()).to(mine.device)
    parts = TrainingParts(method.prepare(model), method, facts, run.train, batches, data.train, loss)
    return Training(parts, mine)


def _growth(model: nn.Module, data: Arrangement, own: OwnLoss | None) -> float | None:
    """How the loss grows with the batch; the losses of the tasks are means."""
    if own is None:
        return 1.0
    inputs, targets = next(iter(data.train))
    return growth_with_batch(own, first_outputs(model, inputs, _FIRST), move(targets, device_of(model)))


def _recalibrate_batchnorm(training: Training, data: Arrangement) -> None:
    """BatchNorm's statistics at the mean weights, from training batches."""
    inputs = ((batch,) for batch, _ in data.train)
    most = math.ceil(_MOST_BATCHNORM / data.look.batch_size)
    recalibrate_batchnorm(training.model, inputs, most, forward=training.forward)
