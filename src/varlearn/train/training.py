"""One optimizer step of a run, for every method, and the state between two steps."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from varlearn.data.batches import Batches
from varlearn.data.examples import Examples
from varlearn.methods import Batch, Facts
from varlearn.train.build import build_batches, build_method, build_model
from varlearn.train.config import Run
from varlearn.train.processes import Processes
from varlearn.train.schedule import lr_factor
from varlearn.train.tasks import Task, as_scores, mean_loss, score_at_weights, task_of
from varlearn.types import Posterior

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

_COMPILATIONS = 8  # of a block: other shapes, with gradients and without


class Training:
    """A network, its method and optimizer, and its place in the data.

    The place is the number of steps: batch k of the run is batch k % M of epoch k // M, where M batches make an epoch,
    and step s takes the batches s * accumulate onwards. Nothing else about the data needs to be saved.

    Args:
        run: the configuration.
        examples: to learn from.
        processes: this process among its peers.

    Attributes:
        method: how steps are taken, and what results.
        facts: what the method knows about the run.
        step: optimizer steps taken.
        skipped: steps that were dropped for NaN or infinite gradients.

    >>> from varlearn.train.config import Data, Model, Optim, Train
    >>> examples = Examples(torch.ones(4, 1), torch.tensor([0, 1, 0, 1]), ("a", "b"), "table")
    >>> run = Run(model=Model("mlp", 2), data=Data(batch_size=2), optim=Optim("sgd"), train=Train(epochs=3))
    >>> training = Training(run, examples, Processes(0, 1, torch.device("cpu")))
    >>> _ = training.gradients()
    >>> training.update()
    >>> training.step, training.facts.steps, training.epoch  # 2 batches make an epoch
    (1, 6, 0.5)
    """

    def __init__(self, run: Run, examples: Examples, processes: Processes) -> None:
        self.run, self.processes = run, processes
        self.task: Task = task_of(examples)
        self._examples = examples
        self._batches = build_batches(run, examples, train=True, rank=processes.rank, world=processes.world)
        self._stream: Iterator[tuple[Tensor, Tensor]] | None = None
        self._synchronize = True  # whether the micro-batch at hand is the last of its step
        self.facts = self._facts()
        self.method = build_method(run)
        self.model = build_model(run, examples).to(processes.device)
        self.optimizer = self.method.optimizer(self.model, self.facts)
        self.scaler = torch.amp.GradScaler(processes.device.type, enabled=run.train.precision == "fp16")
        self.step, self.skipped = 0, 0
        if run.model.compile:
            compile_in_place(self.model)
        self._network = self._parallel()

    @property
    def epoch(self) -> float:
        """Passes over the data so far."""
        return self.step * self.run.train.accumulate / len(self._batches)

    def ends_epoch(self) -> bool:
        """Whether the last step finished a pass over the data."""
        accumulate, size = self.run.train.accumulate, len(self._batches)
        return self.step * accumulate // size > (self.step - 1) * accumulate // size

    def lr(self) -> float:
        """The learning rate of the next step."""
        return self.run.optim.lr * lr_factor(self.run.train, self.step, self.facts.steps)

    def gradients(self) -> Tensor:
        """Forward and backward of one step; returns the mean loss of this process, before anything is updated."""
        if self._stream is None:
            self._stream = stream(self._batches, self.step * self.run.train.accumulate)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr()
        accumulate = self.run.train.accumulate
        self._network.train()
        self.optimizer.zero_grad()
        losses = []
        for micro_batch in range(accumulate):
            self._synchronize = micro_batch == accumulate - 1
            losses += self.method.gradients(self, self._on_device(next(self._stream)))
        return torch.stack(losses).mean()

    def backward(self, batch: Batch, *, share: float | None = None, more: bool = False) -> Tensor:
        """Forward and backward at the weights as they are now; returns the mean loss, detached.

        Args:
            batch: inputs and targets of one micro-batch.
            share: factor of the loss. None divides by the micro-batches of a step, so that gradients add up to a mean.
            more: whether another backward pass of this micro-batch follows. Processes average in the last one.
        """
        alone = contextlib.nullcontext()
        if isinstance(self._network, DistributedDataParallel) and (more or not self._synchronize):
            alone = self._network.no_sync()
        with alone:
            loss = self._loss(self._network, batch)
            self.scaler.scale(loss * (1.0 / self.run.train.accumulate if share is None else share)).backward()
        return loss.detach()

    def loss(self, batch: Batch) -> Tensor:
        """The mean loss of a batch at the weights as they are now, with its graph, in this process alone."""
        return self._loss(self.model, batch)

    def update(self) -> None:
        """Clip, take the step, and count it."""
        before = self._skipped_steps()
        norm = self.run.train.max_grad_norm
        if norm is not None and not self.method.clips_itself:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.skipped += self._skipped_steps() - before
        self.step += 1
        self.method.after_step(self)
        if self.ends_epoch():
            self.method.after_epoch(self)

    def evaluate(self, batches: Batches) -> dict[str, float]:
        """Scores at the mean, over the batches of all processes."""
        sums = score_at_weights(self.model, self.task, batches, self.processes.device, self.autocast)
        return as_scores(self.task, self.processes.total(sums))

    def autocast(self) -> torch.autocast:
        """The precision of a forward pass."""
        precision = self.run.train.precision
        return torch.autocast(self.processes.device.type, DTYPES[precision], enabled=precision != "fp32")

    def posterior(self) -> Posterior:
        """What was learned."""
        return self.method.finish(self, build_batches(self.run, self._examples, train=False))

    def memory(self) -> dict[str, int]:
        """Bytes of the weights and of the optimizer's state; on a GPU also the largest number allocated so far."""
        held = [value for state in self.optimizer.state.values() for value in state.values()]
        found = {
            "weights": sum(param.numel() * param.element_size() for param in self.model.parameters()),
            "state": sum(value.numel() * value.element_size() for value in held if isinstance(value, Tensor)),
        }
        if self.processes.device.type == "cuda":
            found["peak"] = torch.cuda.max_memory_allocated(self.processes.device)
        return found

    def state_dict(self) -> dict[str, Any]:
        """All that decides the steps to come."""
        return {
            "step": self.step,
            "skipped": self.skipped,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method": self.method.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": _rng_state(self.processes.device),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.method.load_state_dict(state.get("method", {}))  # checkpoints of version 0.1.0 have none
        self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["rng"]["cpu"])
        if "cuda" in state["rng"] and self.processes.device.type == "cuda":
            torch.cuda.set_rng_state(state["rng"]["cuda"], self.processes.device)
        self.step, self.skipped, self._stream = state["step"], state["skipped"], None

    def _facts(self) -> Facts:
        run = self.run
        terms = run.data.context if self.task == "language" else 1  # of the loss, per example
        return Facts(
            n=len(self._examples),
            batch_size=run.data.batch_size * terms * run.train.accumulate * self.processes.world,
            steps=run.train.steps or max(1, run.train.epochs * len(self._batches) // run.train.accumulate),
            task=self.task,
            seed=run.seed,
            max_grad_norm=run.train.max_grad_norm,
        )

    def _loss(self, network: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = self._on_device(batch)
        with self.autocast():
            outputs = network(inputs)
        return mean_loss(self.task, outputs, targets)

    def _on_device(self, batch: Batch) -> Batch:
        inputs, targets = (part.to(self.processes.device, non_blocking=True) for part in batch)
        return inputs, targets

    def _skipped_steps(self) -> int:
        """Steps that the optimizer has dropped, where it counts them."""
        return getattr(self.optimizer, "skipped_steps", 0)

    def _parallel(self) -> nn.Module:
        if self.processes.world == 1:
            return self.model
        devices = [self.processes.device] if self.processes.device.type == "cuda" else None
        return DistributedDataParallel(self.model, device_ids=devices)


def stream(batches: Batches, start: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batch number `start` of an endless run over the data, and all that follow.

    >>> examples = Examples(torch.arange(3.0).view(3, 1), torch.arange(3.0), (), "table")
    >>> batches = Batches(examples, 1, seed=0, shuffle=False)
    >>> [int(y) for (_, y), _ in zip(stream(batches, 4), range(3))]
    [1, 2, 0]
    """
    epoch, position = divmod(start, len(batches))
    while True:
        yield from batches.epoch(epoch, position)
        epoch, position = epoch + 1, 0


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


def _rng_state(device: torch.device) -> dict[str, Tensor]:
    """Torch's global generators: none of the models here draws from them, a model with dropout would."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states
