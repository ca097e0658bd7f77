"""One optimizer step of a run, for every method, and the state between two steps."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from varlearn.methods import Batch
from varlearn.optim.lr_history import LrHistory
from varlearn.prediction.loader_batches import arguments, move, outputs_of
from varlearn.train.decisions import Decisions
from varlearn.train.peak_memory import peak_bytes, reset_peak
from varlearn.train.processes import Processes
from varlearn.train.schedule import lr_factor
from varlearn.train.tasks import as_scores, score_at_weights
from varlearn.train.training_parts import PassBatches, TrainingParts
from varlearn.types import Posterior

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Training:
    """A network, its method and optimizer, and its place in the data.

    The place is the number of steps: batch k of the run is batch k % M of epoch k // M, where M batches make an epoch,
    and step s takes the batches s * accumulate onwards. Nothing else about the data needs to be saved.

    Args:
        parts: the network, its method and its data.
        processes: this process among its peers.

    Attributes:
        model: the network.
        method: how steps are taken, and what results.
        facts: what the method knows about the run.
        step: optimizer steps taken.
        skipped: steps that were dropped for NaN or infinite gradients.

    >>> from varlearn.data.examples import Examples
    >>> from varlearn.train.build import build_parts
    >>> from varlearn.train.config import Data, Model, Optim, Run, Train
    >>> examples = Examples(torch.ones(4, 1), torch.tensor([0, 1, 0, 1]), ("a", "b"), "table")
    >>> run = Run(model=Model("mlp", 2), data=Data(batch_size=2), optim=Optim("sgd"), train=Train(epochs=3))
    >>> alone = Processes(0, 1, torch.device("cpu"))
    >>> training = Training(build_parts(run, examples, alone), alone)
    >>> _ = training.gradients()
    >>> training.update()
    >>> training.step, training.facts.steps, training.epoch  # 2 batches make an epoch
    (1, 6, 0.5)
    """

    def __init__(self, parts: TrainingParts, processes: Processes) -> None:
        self.parts, self.processes = parts, processes
        self.model, self.method, self.facts = parts.model, parts.method, parts.facts
        self._stream: Iterator[Batch] | None = None
        self._batch: Batch | None = None  # of the last gradients
        self._synchronize = True  # whether the micro-batch at hand is the last of its step
        self.optimizer = self.method.optimizer(self.model, self.facts)
        self._peak_lr = float(self.optimizer.param_groups[0]["lr"])  # the method may have chosen it by the weights
        self.scaler = torch.amp.GradScaler(processes.device.type, enabled=parts.train.precision == "fp16")
        self.step, self.skipped = 0, 0
        self._network = self._parallel()
        reset_peak(processes.device)
        self._settled = False  # whether DDP's buckets have their final order

    @property
    def held_out(self) -> Iterable[Batch] | None:
        """The validation examples in their order, if the run has some."""
        return self.parts.held_out

    @property
    def epoch(self) -> float:
        """Passes over the data so far."""
        return self.step * self.parts.train.accumulate / len(self.parts.batches)

    def ends_epoch(self) -> bool:
        """Whether the last step finished a pass over the data."""
        accumulate, size = self.parts.train.accumulate, len(self.parts.batches)
        return self.step * accumulate // size > (self.step - 1) * accumulate // size

    def lr(self) -> float:
        """The learning rate of the next step."""
        return self.method.lr(self.step, self.facts, self._peak_lr, partial(lr_factor, self.parts.train))

    def gradients(self) -> Tensor:
        """Forward and backward of one step; returns the mean loss of this process, before anything is updated."""
        if self._stream is None:
            self._stream = stream(self.parts.batches, self.step * self.parts.train.accumulate)
            self._settle_buckets()
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr()
        accumulate = self.parts.train.accumulate
        self._network.train()
        self.optimizer.zero_grad()
        losses = []
        for micro_batch in range(accumulate):
            self._synchronize = micro_batch == accumulate - 1
            self._batch = self._on_device(next(self._stream))
            losses += self.method.gradients(self, self._batch)
        return torch.stack(losses).mean()

    def bad_inputs(self) -> str:
        """Which inputs of the last batch have NaN or infinite values, in words; "" where none have."""
        inputs = None if self._batch is None else self._batch[0]
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
            return ""
        bad = int((~inputs.isfinite()).reshape(len(inputs), -1).any(1).sum())
        return f"{bad} of the {len(inputs)} inputs of its batch" if bad else ""

    @property
    def micro_batches(self) -> int:
        """How many micro-batches a step has."""
        return self.parts.train.accumulate

    @property
    def grad_scale(self) -> float:
        """The factor that gradients have in `p.grad` until the step."""
        return self.scaler.get_scale() if self.scaler.is_enabled() else 1.0

    def backward(
        self,
        batch: Batch,
        *,
        share: float | None = None,
        more: bool = False,
        on_loss: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """Forward and backward at the weights as they are now; see `methods.Training`."""
        alone = contextlib.nullcontext()
        if isinstance(self._network, DistributedDataParallel) and (more or not self._synchronize):
            alone = self._network.no_sync()
        with alone:
            loss = self._loss(self._network, batch)
            if on_loss is not None:
                on_loss(loss)
            self.scaler.scale(loss * (1.0 / self.parts.train.accumulate if share is None else share)).backward()
        return loss.detach()

    def loss(self, batch: Batch, network: Callable[..., Any] | None = None) -> Tensor:
        """The mean loss of a batch at the weights as they are now, with its graph, in this process alone."""
        return self._loss(network or self.model, batch)

    def update(self) -> None:
        """Clip, take the step, and count it."""
        before = self._skipped_steps()
        norm = self.parts.train.max_grad_norm
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

    def evaluate(self, batches: Iterable[Batch]) -> dict[str, float]:
        """Scores at the mean, over the batches of all processes."""
        task, decided = self.facts.task, Decisions(self.processes)
        collect = None if task == "language" else decided.add
        sums = score_at_weights(self.model, self.forward, self.parts.loss, batches, collect)
        return as_scores(task, self.processes.total(sums)) | decided.scores(task)

    def forward(self, inputs: Any, network: Callable[..., Any] | None = None) -> Any:
        """The outputs of the network for the inputs of a batch, in the run's precision."""
        args, kwargs = arguments(move(inputs, self.processes.device))
        with self.autocast():
            return outputs_of((network or self.model)(*args, **kwargs))

    def autocast(self) -> torch.autocast:
        """The precision of a forward pass."""
        precision = self.parts.train.precision
        return torch.autocast(self.processes.device.type, DTYPES[precision], enabled=precision != "fp32")

    def posterior(self) -> Posterior:
        """What was learned."""
        return self.method.finish(self, self.parts.plain)

    def memory(self) -> dict[str, int]:
        """Bytes of the weights, of the optimizer's state, and the most that was held since training began."""
        held = [value for state in self.optimizer.state.values() for value in state.values()]
        peak = peak_bytes(self.processes.device)
        return {
            "weights": sum(param.numel() * param.element_size() for param in self.model.parameters()),
            "state": sum(value.numel() * value.element_size() for value in held if isinstance(value, Tensor)),
        } | ({} if peak is None else {"peak": peak})

    def state_dict(self) -> dict[str, Any]:
        """All that decides the steps to come."""
        return {
            "step": self.step,
            "skipped": self.skipped,
            "peak_lr": self._peak_lr,
            "lr_history": getattr(self.optimizer, "lr_history", LrHistory()).state_dict(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method": self.method.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": _rng_state(self.processes.device),
            "loss": self.parts.loss.state_dict() if isinstance(self.parts.loss, nn.Module) else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.method.load_state_dict(state.get("method", {}))  # version 0.1.0 saved none of these three
        self._peak_lr = state.get("peak_lr", self._peak_lr)
        getattr(self.optimizer, "lr_history", LrHistory()).load_state_dict(state.get("lr_history", []))
        self.scaler.load_state_dict(state["scaler"])
        if isinstance(self.parts.loss, nn.Module):
            self.parts.loss.load_state_dict(state["loss"])
        torch.set_rng_state(state["rng"]["cpu"])
        if "cuda" in state["rng"] and self.processes.device.type == "cuda":
            torch.cuda.set_rng_state(state["rng"]["cuda"], self.processes.device)
        self.step, self.skipped, self._stream = state["step"], state["skipped"], None

    def _loss(self, network: Callable[..., Any], batch: Batch) -> Tensor:
        inputs, targets = batch
        return self.parts.loss(self.forward(inputs, network), targets.to(self.processes.device, non_blocking=True))

    def _settle_buckets(self) -> None:
        """Let DDP reorder its buckets now, as it does after its first backward pass.

        The place of a gradient in its bucket decides in which order three and more ranks are summed, so the first step
        of a resumed run would be rounded otherwise than the same step of an uninterrupted run.
        """
        network = self._network
        if self.processes.world < 3 or self._settled or not isinstance(network, DistributedDataParallel):
            return
        assert self._stream is not None
        first = next(self._stream)
        self._stream = itertools.chain([first], self._stream)
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        device = self.processes.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            network.train()
            self._loss(network, self._on_device(first)).backward()
        self.optimizer.zero_grad()
        for name, buffer in self.model.named_buffers():
            buffer.copy_(buffers[name])
        self._settled = True

    def _on_device(self, batch: Batch) -> Batch:
        return move(batch[0], self.processes.device), move(batch[1], self.processes.device)

    def _skipped_steps(self) -> int:
        """Steps that the optimizer has dropped, where it counts them."""
        return getattr(self.optimizer, "skipped_steps", 0)

    def _parallel(self) -> nn.Module:
        if self.processes.world == 1:
            return self.model
        devices = [self.processes.device] if self.processes.device.type == "cuda" else None
        return DistributedDataParallel(self.model, device_ids=devices)


def stream(batches: PassBatches, start: int) -> Iterator[Batch]:
    """Batch number `start` of an endless run over the data, and all that follow.

    >>> from varlearn.data.batches import Batches
    >>> from varlearn.data.examples import Examples
    >>> examples = Examples(torch.arange(3.0).view(3, 1), torch.arange(3.0), (), "table")
    >>> batches = Batches(examples, 1, seed=0, shuffle=False)
    >>> [int(y) for (_, y), _ in zip(stream(batches, 4), range(3))]
    [1, 2, 0]
    """
    epoch, position = divmod(start, len(batches))
    while True:
        yield from batches.epoch(epoch, position)
        epoch, position = epoch + 1, 0


def _rng_state(device: torch.device) -> dict[str, Tensor]:
    """Torch's global generators: none of the models here draws from them, a model with dropout would."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states
