"""The training loop: from a `Run` to a folder with its log, checkpoints and posterior."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from varlearn import posterior
from varlearn.files.atomic import writing
from varlearn.files.checked_json import read_json, write_json
from varlearn.files.formats import CorruptFileError, rebuilding
from varlearn.train.build import build_batches
from varlearn.train.config import Run, from_json, to_json
from varlearn.train.environment import environment
from varlearn.train.final_posterior import final_posterior
from varlearn.train.log import JsonLines, Logger
from varlearn.train.processes import Processes, processes
from varlearn.train.run_errors import Interrupted, NonFiniteLossError, RunFolderError
from varlearn.train.run_folder import RunFolder, config_differences
from varlearn.train.signals import StopRequest
from varlearn.train.splits import build_splits
from varlearn.train.step_progress import training_progress
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
            if mine.writes:
                stack.enter_context(folder.opened(run, resume=resume))
        stack.enter_context(torch.random.fork_rng([mine.device] if mine.device.type == "cuda" else []))
        torch.manual_seed(run.seed)
        loop = _Loop(run, folder, mine, root)
        stack.callback(loop.close)
        loop.start(resume)
        loop.go(progress, logger)
    return folder.posterior


class _Loop:
    """One run in one process: what is measured, and what is written when."""

    def __init__(self, run: Run, folder: RunFolder, mine: Processes, root: Path | None) -> None:
        self.run, self.folder, self.mine = run, folder, mine
        self.splits = build_splits(run, mine, root)
        self.training = Training(run, self.splits.train, mine)
        self.measured = build_batches(run, self.splits.measured, train=False, rank=mine.rank, world=mine.world)
        self.best = math.inf
        self.losses, self.count = 0.0, 0  # since the last line of the log
        self.log: JsonLines | None = None
        self.timing: JsonLines | None = None
        self.began = time.monotonic()

    def start(self, resume: bool) -> None:
        """Load the newest sound checkpoint, and cut the log off where it was then."""
        restored = self.folder.checkpoints.newest() if resume else None
        self.mine.wait()  # all have read before one renames or removes
        state = restored.state if restored else None
        if restored and state is not None:
            self._check_ours(restored.path, state)
            if state["processes"] != self.mine.world:
                raise RunFolderError(
                    f"the run was made by {state['processes']} process(es) and would go on with {self.mine.world}, "
                    f"which see other data; start {state['processes']}"
                )
            self.training.load_state_dict(state["training"])
            self.best, self.losses, self.count = state["best"], state["losses"], state["count"]
        with self.mine.together():
            if self.mine.writes:
                self._open_files(resume, state, restored.damaged if restored else {})

    def _check_ours(self, path: Path | None, state: dict[str, Any]) -> None:
        """Refuse a checkpoint that was copied from another run: it has other settings."""
        with rebuilding(path or self.folder.checkpoints.folder, "a checkpoint of a run"):
            missing = {"config", "processes", "training", "best", "losses", "count", "log_bytes"} - state.keys()
            if missing:
                raise KeyError(min(missing))
            written_by = from_json(state["config"])
        if differences := config_differences(written_by, self.run):
            lines = "; ".join(f"{key} was {was!r}, is now {now!r}" for key, (was, now) in differences.items())
            raise RunFolderError(
                f"{path} is a checkpoint of another run: {lines}. Put back the one that this run wrote, or remove it "
                "to go on from the checkpoint before it"
            )

    def _open_files(self, resume: bool, state: dict[str, Any] | None, damaged: dict[Path, str]) -> None:
        for path, damage in damaged.items():
            self._say(f"{damage}. Set aside; going on from the one before it")
            self.folder.checkpoints.set_aside(path)
        self._record_environment()
        if state and (not self.folder.log.exists() or self.folder.log.stat().st_size < state["log_bytes"]):
            self._say(f"{self.folder.log} has lost lines since the checkpoint; going on without them")
        self.log = JsonLines(self.folder.log, keep=state["log_bytes"] if state else 0)
        self.timing = JsonLines(self.folder.timing)
        self.timing.write({"event": "start", "step": self.training.step, "time": time.time()})
        if resume:
            self._say(f"going on at step {self.training.step} of {self.training.facts.steps}")

    def go(self, progress: bool | None, logger: Logger | None) -> None:
        """Take the steps that are left, and write the posterior."""
        training = self.training
        show = progress if self.mine.writes else False
        if self.splits.name == "test" and progress is not False:
            self._say("data.validation=0: evaluations use test data, so no best checkpoint is chosen")
        with StopRequest() as stop, training_progress(training.facts.steps, training.step, show) as shown:
            while training.step < training.facts.steps:
                requested = self._step(stop)
                shown(training.step, f"loss {self.losses / self.count:.4f}")
                self._measure(logger if self.mine.writes else None)
                if requested or self._due(self.run.train.checkpoint_every):
                    self._save()
                if requested and training.step < training.facts.steps:
                    self._stop(requested)
        with self.mine.together():
            if self.mine.writes:
                learned = final_posterior(training, self.splits)
                with writing(self.folder.posterior):
                    posterior.save(learned, self.folder.posterior, card=_card(self.run))
                assert self.timing is not None
                self.timing.write({"event": "end", "step": training.step, "bytes": training.memory()})

    def close(self) -> None:
        """Close the files."""
        for file in (self.log, self.timing):
            if file is not None:
                file.close()

    def _step(self, stop: StopRequest) -> int:
        """One step of all processes together; returns the signal that any of them was sent, or 0."""
        loss = self.training.gradients().double().cpu()
        shared = self.mine.total(torch.stack([loss, torch.tensor(float(stop.number), dtype=torch.float64)]))
        mean = shared[0].item() / self.mine.world
        if not math.isfinite(mean):
            raise NonFiniteLossError(self._not_finite(mean))
        self.training.update()
        self.losses += mean
        self.count += 1
        if self.mine.world == 1:
            return stop.number
        return (stop.number or signal.SIGTERM) if shared[1] > 0 else 0  # the same step for all, whoever was told

    def _measure(self, logger: Logger | None) -> None:
        """Write what is due at this step to the log, and keep the weights that are best on validation data."""
        training = self.training
        if training.step % self.run.train.log_every == 0 or training.step == training.facts.steps:
            record: dict[str, Any] = {"step": training.step, "epoch": training.epoch}
            record |= {"loss": self.losses / self.count, "lr": training.optimizer.param_groups[0]["lr"]}
            record["skipped"] = training.skipped
            if training.step == min(self.run.train.log_every, training.facts.steps):
                record["facts"] = self._facts()
            if diagnostics := training.method.diagnostics(training):
                record[training.method.name] = diagnostics
            self.losses, self.count = 0.0, 0
            self._write(record, logger)
        if self._due(self.run.train.eval_every):
            scores, split = training.evaluate(self.measured), self.splits.name
            self._write({"step": training.step, "epoch": training.epoch, "split": split, "eval": scores}, logger)
            if split == "validation" and scores["nll"] < self.best:
                self.best = scores["nll"]
                with self.mine.together():
                    if self.mine.writes:
                        self.folder.checkpoints.save_best(self._state())

    def _facts(self) -> dict[str, Any]:
        """What advice about the run needs and its other files do not have."""
        facts, examples = self.training.facts, self.splits.train
        known = {"task": facts.task, "n": facts.n, "batch_size": facts.batch_size, "steps": facts.steps}
        known |= {"classes": len(examples.classes) or examples.vocab or None, "input_shift": self.splits.input_shift}
        return {name: value for name, value in known.items() if value is not None}

    def _due(self, every: int | None) -> bool:
        """At the last step always; else every so many steps, None for every epoch and 0 for no more than that."""
        if self.training.step == self.training.facts.steps:
            return True
        return self.training.ends_epoch() if every is None else every > 0 and self.training.step % every == 0

    def _save(self) -> None:
        with self.mine.together():
            if self.mine.writes:
                self.folder.checkpoints.save(self.training.step, self._state())

    def _state(self) -> dict[str, Any]:
        assert self.log is not None
        return {
            "config": to_json(self.run),
            "processes": self.mine.world,
            "training": self.training.state_dict(),
            "best": self.best,
            "losses": self.losses,
            "count": self.count,
            "log_bytes": self.log.flush(),
        }

    def _write(self, record: dict[str, Any], logger: Logger | None) -> None:
        with self.mine.together():
            if self.log is None or self.timing is None:
                return
            self.log.write(record)
            self.timing.write({"step": record["step"], "time": time.time(), "seconds": time.monotonic() - self.began})
            if logger is not None:
                logger.write(record)

    def _record_environment(self) -> None:
        now = environment(self.mine.device, self.mine.world)
        if self.folder.env.exists():
            try:
                before = read_json(self.folder.env)
            except CorruptFileError as error:
                self._say(f"{error}. It is replaced")
            else:
                if before != now:
                    self._say(
                        f"the machine or a package differs from {self.folder.env}: the result may differ in the bits"
                    )
                return
        write_json(self.folder.env, now)

    def _not_finite(self, loss: float) -> str:
        last = self.folder.checkpoints.paths()
        where = f"the last good checkpoint is {last[-1]}" if last else "there is no checkpoint yet"
        return (
            f"the loss is {loss} at step {self.training.step + 1}; {where}. It was written before this step, "
            "so resuming repeats it: start anew with a smaller lr, a larger hess_init or ess, or gradient clipping"
        )

    def _stop(self, number: int) -> None:
        message = (
            f"stopped after step {self.training.step} of {self.training.facts.steps}, saved in "
            f"{self.folder.checkpoints.folder}; go on with fit(run, {str(self.folder.out)!r}, resume=True), "
            "on the command line with --resume"
        )
        self._say(message)
        raise Interrupted(128 + number, message)  # as shells count: 130 or 143

    def _say(self, words: str) -> None:
        if self.mine.writes:
            print(words, file=sys.stderr, flush=True)


def _card(run: Run) -> str:
    return f"{run.model.name} on {run.data.name} by {run.optim.name}, recipe {run.recipe}, seed {run.seed}"
