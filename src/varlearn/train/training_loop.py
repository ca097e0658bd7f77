"""From a `Run` to a folder with its log, checkpoints and posterior."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from varlearn import posterior
from varlearn.files.atomic import writing
from varlearn.train.build import build_batches, build_parts, check_reads
from varlearn.train.config import Run
from varlearn.train.final_posterior import final_posterior
from varlearn.train.log import Logger
from varlearn.train.loo_measure import LOOMeasure
from varlearn.train.processes import processes
from varlearn.train.run_folder import RunFolder
from varlearn.train.run_loop import Measured, RunLoop
from varlearn.train.splits import build_splits
from varlearn.train.tasks import guessing_loss
from varlearn.train.training import Training


def fit(
    run: Run,
    out: str | Path,
    *,
    resume: bool = False,
    progress: bool | None = None,
    logger: Logger | None = None,
    device: torch.device | str | None = None,
    root: Path | None = None,
) -> Path:
    """Train, and leave `config.json`, `env.json`, `log.jsonl`, `checkpoint/` and `posterior.safetensors` in a folder.

    With `data.validation`, evaluations use the examples held out, `checkpoint/best.safetensors` is the checkpoint with
    the lowest NLL on them, and the temperature of the posterior is fitted to them. Nothing is chosen on test data.

    A run that was killed goes on from its newest sound checkpoint with `resume=True`, and ends with the bits of a run
    that was not, on the same machine and software. Started by `torchrun`, the processes train together. The global
    random state of the caller is not touched.

    Args:
        run: everything that decides the result.
        out: the run's folder, empty or absent unless `resume`.
        resume: go on with the run in `out`, or begin it if there is none.
        progress: False for silence; None or True for a bar in a terminal, and lines elsewhere.
        logger: takes every record too, e.g. `open_logger("tensorboard", out)`; it is closed at the end.
        device: where to compute; None for a GPU if there is one.
        root: where the data are; None for the usual places.

    Returns:
        The path of `posterior.safetensors`.

    Raises:
        RunFolderError: if `out` must not be used as asked.
        Interrupted: after Ctrl-C or SIGTERM, when the step is finished and saved.
        NonFiniteLossError: if the loss is NaN or infinite.
        WriteError: if a file cannot be written; earlier checkpoints are whole.
        PeerError: if another process failed at one of these.

    >>> import tempfile
    >>> from varlearn.train import Data, Model, Optim, Train
    >>> data, optim = Data("digits", augment=False), Optim("sgd", lr=0.05)
    >>> run = Run(model=Model("mlp", hidden=()), data=data, optim=optim, train=Train(epochs=1))
    >>> with tempfile.TemporaryDirectory() as out:
    ...     path = fit(run, out, progress=False)
    ...     posterior.load(path)  # 64 * 10 weights and 10 biases
    Point over 650 weights in 2 tensors
    """
    folder = RunFolder(Path(out))
    with contextlib.ExitStack() as stack:
        if logger is not None:
            stack.callback(logger.close)
        mine = stack.enter_context(processes(device))
        with mine.together():
            folder.check(run, resume=resume)
        stack.enter_context(torch.random.fork_rng([mine.device] if mine.device.type == "cuda" else []))
        torch.manual_seed(run.seed)
        splits = build_splits(run, mine, root)
        held_out = splits.measured if splits.name == "validation" else None
        training = Training(build_parts(run, splits.train, mine, held_out), mine)
        measured = build_batches(run, splits.measured, train=False, rank=mine.rank, world=mine.world)
        check_reads(run, training.model, measured)
        classes = len(splits.train.classes) or splits.train.vocab or None
        about = {"classes": classes, "input_shift": splits.input_shift, "loss_growth_with_batch": 1.0}  # ours is a mean
        if training.facts.task == "regression":
            about["loss_guessing"] = guessing_loss(splits.train.targets.double().std(0, correction=0))
        loo = LOOMeasure(run, training, splits.train, splits.numbers) if run.train.loo_every is not None else None
        loop = RunLoop(run, training, Measured(measured, splits.name), folder, about, loo)
        with mine.together():  # the folder is made when nothing is left to be refused
            if mine.writes:
                stack.enter_context(folder.opened(run, resume=resume))
        stack.callback(loop.close)
        loop.start(resume)
        if splits.name == "test" and progress is not False:
            loop.say("data.validation=0: evaluations use test data, so no best checkpoint is chosen")
        loop.go(progress, logger)
        with mine.together():
            if mine.writes:
                learned = final_posterior(run, training, training.held_out)
                with writing(folder.posterior):
                    posterior.save(learned, folder.posterior, card=_card(run))
                loop.end()
    return folder.posterior


def _card(run: Run) -> str:
    return f"{run.model.name} on {run.data.name} by {run.optim.name}, recipe {run.recipe}, seed {run.seed}"
