"""The training loop: steps, measurements, checkpoints and interruptions."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from varlearn.files.checked_json import read_json_lines
from varlearn.files.formats import rebuilding
from varlearn.methods import Batch
from varlearn.train import checkpoint
from varlearn.train.config import Run, from_json, to_json
from varlearn.train.environment import environment, record_environment
from varlearn.train.log import JsonLines, Logger
from varlearn.train.loo_measure import LOOMeasure
from varlearn.train.run_errors import NonFiniteLossError, RunFolderError, stopped
from varlearn.train.run_folder import RunFolder, config_differences
from varlearn.train.signals import StopRequest
from varlearn.train.step_progress import training_progress
from varlearn.train.training import Training


class Measured(NamedTuple):
    """What a run is measured on while it trains."""

    batches: Iterable[Batch]
    split: Literal["validation", "test"]


class RunLoop:
    """One run in one process: what is measured, and what is written when.

    Args:
        run: its settings, which a checkpoint must have in common with it.
        training: takes the steps.
        measured: what to evaluate on; None for nothing.
        folder: where log and checkpoints go; None writes no file.
        about: what advice about the run needs besides; stands in the first record of the log.
        loo: measures leave-one-out losses; None for a run without.

    Attributes:
        records: what was measured, as in the log; of a resumed run from its first step on.
    """

    def __init__(
        self,
        run: Run,
        training: Training,
        measured: Measured | None,
        folder: RunFolder | None,
        about: Mapping[str, Any],
        loo: LOOMeasure | None = None,
    ) -> None:
        self.about, self.loo = about, loo
        self.run, self.training, self.measured, self.folder = run, training, measured, folder
        self.mine = training.processes
        self.records: list[dict[str, Any]] = []
        self.best = math.inf
        self.losses, self.count = 0.0, 0  # since the last line of the log
        self.first_loss: float | None = None
        self.log: JsonLines | None = None
        self.timing: JsonLines | None = None
        self.began = time.monotonic()

    def start(self, resume: bool) -> None:
        """Load the newest sound checkpoint, and cut the log off where it was then."""
        if self.folder is None:
            return
        restored = self.folder.checkpoints.newest() if resume else None
        self.mine.wait()  # all have read before one renames or removes
        state = restored.state if restored else None
        if restored and state is not None:
            self._check_ours(restored.path or self.folder.out, state)
            if state["processes"] != self.mine.world:
                raise RunFolderError(
                    f"the run was made by {state['processes']} process(es) and would go on with {self.mine.world}, "
                    f"which see other data; start {state['processes']}"
                )
            self.training.load_state_dict(state["training"])
            self.best, self.losses, self.count = state["best"], state["losses"], state["count"]
            self.first_loss = state.get("first_loss")  # version 0.1.0 saved none
            if self.loo is not None:
                self.loo.load_state_dict(state["loo"])
        with self.mine.together():
            if self.mine.writes:
                self._open_files(self.folder, resume, state, restored.damaged if restored else {})
        if state:
            self.records = list(read_json_lines(self.folder.log).records)

    def _check_ours(self, path: Path, state: dict[str, Any]) -> None:
        """Refuse a checkpoint that was copied from another run: it has other settings."""
        with rebuilding(path, "a checkpoint of a run"):
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

    def _open_files(
        self, folder: RunFolder, resume: bool, state: dict[str, Any] | None, damaged: dict[Path, str]
    ) -> None:
        for path, damage in damaged.items():
            self.say(f"{damage}. Set aside; going on from the one before it")
            folder.checkpoints.set_aside(path)
        folder.checkpoints.remove_old()
        record_environment(folder.env, environment(self.mine.device, self.mine.world), self.say)
        if state and (not folder.log.exists() or folder.log.stat().st_size < state["log_bytes"]):
            self.say(f"{folder.log} has lost lines since the checkpoint; going on without them")
        self.log = JsonLines(folder.log, keep=state["log_bytes"] if state else 0)
        self.timing = JsonLines(folder.timing)
        self.timing.write({"event": "start", "step": self.training.step, "time": time.time()})
        if resume:
            self.say(f"going on at step {self.training.step} of {self.training.facts.steps}")

    def go(self, progress: bool | None, logger: Logger | None) -> None:
        """Take the steps that are left."""
        training = self.training
        show = progress if self.mine.writes else False
        with contextlib.ExitStack() as stack:
            # Without a folder nothing can be saved, and Ctrl-C interrupts at once.
            stop = stack.enter_context(StopRequest()) if self.folder is not None else None
            shown = stack.enter_context(training_progress(training.facts.steps, training.step, show))
            while training.step < training.facts.steps and not self._gives_up():
                requested = self._step(stop)
                shown(training.step, f"loss {self.losses / self.count:.4f}")
                self._measure(logger if self.mine.writes else None)
                if self.folder is None:
                    continue
                if requested or self._gives_up() or self._due(self.run.train.checkpoint_every):
                    self._save(self.folder)
                self._keep_snapshot(self.folder)
                if stop and training.step == training.facts.steps and self.mine.world == 1:
                    requested = stop.number  # no further step would see a signal that came since
                if requested:
                    self._stop(self.folder, requested)
            if self._gives_up() and self.folder is not None:
                self._return_to_best(self.folder)

    def end(self) -> None:
        """Record that the run is finished, with the memory that it took."""
        if self.timing is not None:
            self.timing.write({"event": "end", "step": self.training.step, "bytes": self.training.memory()})

    def close(self) -> None:
        """Close the files."""
        for file in (self.log, self.timing):
            if file is not None:
                file.close()

    def _step(self, stop: StopRequest | None) -> int:
        """One step of all processes together; returns the signal that any of them was sent, or 0."""
        loss = self.training.gradients().double().cpu()
        number = stop.number if stop else 0
        shared = self.mine.total(torch.stack([loss, torch.tensor(float(number), dtype=torch.float64)]))
        mean = shared[0].item() / self.mine.world
        if not math.isfinite(mean):
            raise NonFiniteLossError(self._not_finite(mean))
        if self.training.step == 0:
            self.first_loss = mean
        self.training.update()
        self.losses += mean
        self.count += 1
        if self.mine.world == 1:
            return stop.number if stop else 0  # it may have come during the update
        return (number or signal.SIGTERM) if shared[1] > 0 else 0  # all ranks stop at the same step

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
        if self.measured is not None and self._due(self.run.train.eval_every):
            scores, split = training.evaluate(self.measured.batches), self.measured.split
            self._write({"step": training.step, "epoch": training.epoch, "split": split, "eval": scores}, logger)
            if split == "validation" and scores["nll"] < self.best:
                self.best = scores["nll"]
                with self.mine.together():
                    if self.mine.writes and self.folder is not None:
                        self.folder.checkpoints.save_best(self._state())
        self._measure_loo(logger)

    def _measure_loo(self, logger: Logger | None) -> None:
        """Write the leave-one-out loss where it is due; every process computes the same one."""
        if self.loo is None or (every := self.run.train.loo_every) is None or not self._due(every or None):
            return
        scores, is_best = self.loo.measure()
        step, epoch = self.training.step, self.training.epoch
        self._write({"step": step, "epoch": epoch, "split": "leave-one-out", "eval": scores}, logger)
        if is_best and self.run.train.loo_patience is not None:
            with self.mine.together():
                if self.mine.writes and self.folder is not None:
                    self.folder.checkpoints.save_best(self._state(), "loo")

    def _gives_up(self) -> bool:
        """Whether the leave-one-out loss has stopped to fall, and training ends early."""
        return self.loo is not None and self.loo.gives_up

    def _return_to_best(self, folder: RunFolder) -> None:
        """Take the weights and the state of the step with the lowest leave-one-out loss."""
        assert self.loo is not None
        stopped, lowest = self.training.step, folder.checkpoints.best_by("loo")
        self.training.load_state_dict(checkpoint.read(lowest)["training"])
        self.say(
            f"the leave-one-out loss was lowest at step {self.training.step} ({self.loo.best:.4f}), so training ended "
            f"at step {stopped}; the posterior is that of step {self.training.step}"
        )

    def _keep_snapshot(self, folder: RunFolder) -> None:
        """Keep the checkpoint of an epoch that `train.snapshots` names."""
        epoch = round(self.training.epoch)
        if self.training.ends_epoch() and epoch in self.run.train.snapshots:
            with self.mine.together():
                if self.mine.writes:
                    folder.checkpoints.keep(epoch, self._state())

    def _facts(self) -> dict[str, Any]:
        """What advice about the run needs and its other files do not have."""
        facts, about = self.training.facts, {"loss_start": self.first_loss, **self.about}
        known = {"task": facts.task, "n": facts.n, "batch_size": facts.batch_size, "steps": facts.steps, **about}
        return {name: value for name, value in known.items() if value is not None}

    def _due(self, every: int | None) -> bool:
        """At the last step always; else every so many steps, None for every epoch and 0 for no more than that."""
        if self.training.step == self.training.facts.steps:
            return True
        return self.training.ends_epoch() if every is None else every > 0 and self.training.step % every == 0

    def _save(self, folder: RunFolder) -> None:
        with self.mine.together():
            if self.mine.writes:
                folder.checkpoints.save(self.training.step, self._state())

    def _state(self) -> dict[str, Any]:
        assert self.log is not None
        state: dict[str, Any] = {} if self.loo is None else {"loo": self.loo.state_dict()}
        return {
            **state,
            "config": to_json(self.run),
            "processes": self.mine.world,
            "training": self.training.state_dict(),
            "best": self.best,
            "losses": self.losses,
            "count": self.count,
            "first_loss": self.first_loss,
            "log_bytes": self.log.flush(),
        }

    def _write(self, record: dict[str, Any], logger: Logger | None) -> None:
        self.records.append(record)
        with self.mine.together():
            if self.log is not None and self.timing is not None:
                self.log.write(record)
                seconds = time.monotonic() - self.began
                self.timing.write({"step": record["step"], "time": time.time(), "seconds": seconds})
            if logger is not None:
                logger.write(record)

    def _not_finite(self, loss: float) -> str:
        cure = "start anew with a smaller lr, a larger hess_init or ess, or gradient clipping"
        found = f"the loss is {loss} at step {self.training.step + 1}"
        if bad := self.training.bad_inputs():
            cure = f"{bad} are NaN or infinite, so leave these out, or fill in their values"
        if self.folder is None:
            return f"{found}; {cure}"
        last = self.folder.checkpoints.paths()
        if not last:
            return f"{found}; there is no checkpoint yet: {cure}"
        return f"{found}; the last good checkpoint is {last[-1]}. Resuming from it repeats this step: {cure}"

    def _stop(self, folder: RunFolder, number: int) -> None:
        training = self.training
        error = stopped(number, training.step, training.facts.steps, folder.checkpoints.folder, folder.out)
        self.say(error.message)
        raise error

    def say(self, words: str) -> None:
        """Tell the user, once for all processes."""
        if self.mine.writes:
            print(words, file=sys.stderr, flush=True)
