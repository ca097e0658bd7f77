"""What a method of training is: the interface between `train` and the rows of the table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from varlearn.methods.shared_settings import Optim

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from varlearn.posterior import DiagGaussian
    from varlearn.types import Posterior, Sampler

    Batch = tuple[Tensor, Tensor]
else:
    Batch = tuple

Task = Literal["classification", "language", "regression"]
S = TypeVar("S", bound=Optim)


@dataclass(frozen=True)
class Facts:
    """What a method may know about a run before its first step.

    Attributes:
        n: training examples; of a text to be continued, tokens.
        batch_size: examples or tokens per step, over all micro-batches and processes.
        steps: optimizer steps of the whole run.
        task: what the network is trained to do.
        seed: of the run.
        max_grad_norm: bound on the norm of the gradient; None for no bound.
        held_out: validation examples.
    """

    n: int
    batch_size: int
    steps: int
    task: Task
    seed: int = 0
    max_grad_norm: float | None = None
    held_out: int = 0


class Training(Protocol):
    """What a method sees of its run.

    Attributes:
        model: the network, on its device.
        optimizer: the one that the method made.
        facts: about the run.
        step: optimizer steps taken.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    facts: Facts
    step: int

    @property
    def held_out(self) -> Iterable[Batch] | None:
        """The validation examples in their order, if the run has some; may be read several times."""
        ...

    @property
    def micro_batches(self) -> int:
        """How many micro-batches a step has."""
        ...

    @property
    def grad_scale(self) -> float:
        """The factor that gradients have in `p.grad` until the step: the loss scale of float16, otherwise 1."""
        ...

    def backward(
        self,
        batch: Batch,
        *,
        share: float | None = None,
        more: bool = False,
        on_loss: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """Forward and backward at the weights as they are now; returns the mean loss, detached.

        Args:
            batch: inputs and targets of one micro-batch.
            share: factor of the loss. None divides by the micro-batches of a step, so that gradients add up to a mean.
            more: whether another backward pass of this micro-batch follows. Processes average in the last one.
            on_loss: called with the loss before its backward pass; it may differentiate the loss, keeping the graph.
        """
        ...

    def forward(self, inputs: Any) -> Any:
        """The outputs of the network, in the run's precision."""
        ...

    def loss(self, batch: Batch, network: Callable[..., Any] | None = None) -> Tensor:
        """The mean loss of a batch at the weights as they are now, with its graph, in this process alone.

        `network` is called in place of the model.
        """
        ...


class Method(ABC, Generic[S]):
    """A method of training: how the optimizer is made, how a step is taken, and which posterior results.

    An object belongs to one run. The defaults are those of an ordinary optimizer, whose posterior is a point: such a
    method defines `optimizer` alone. What a method collects between steps is its own state, and is saved with
    checkpoints.

    Args:
        settings: of the class `Settings`.

    Attributes:
        name: under which `METHODS`, `config.json` and the command line know it.
        label: how tables and figures write it.
        cost: of training, in words: passes, and memory besides weights and gradients.
        Settings: the class of its settings; a subclass of `Optim` where it has further ones.
        averages: whether predictions are averaged over samples. False: the posterior is a point.
        passes: forward and backward passes of a step with one sample, in those of SGD, to compare at equal compute.
            Per-example gradients and a product with the Hessian count as a further pass each.
        clips_itself: whether the optimizer bounds the gradient's norm (`Facts.max_grad_norm`). False: the loop does.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    cost: ClassVar[str]
    Settings: ClassVar[type[Optim]] = Optim
    averages: ClassVar[bool] = True
    passes: ClassVar[int] = 1
    clips_itself: ClassVar[bool] = False

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @classmethod
    def untuned(cls, model: nn.Module, n: int, steps: int) -> dict[str, Any] | None:
        """Settings that need no tuning, for `varlearn.fit`; None if the method has no rule and takes its defaults.

        Args:
            model: with its initial weights.
            n: terms of the training loss.
            steps: of the whole run.
        """
        return None

    def prepare(self, model: nn.Module) -> nn.Module:
        """The network to train and to predict with: the given one, changed or wrapped, with unchanged weights."""
        return model

    @abstractmethod
    def optimizer(self, model: nn.Module, facts: Facts) -> torch.optim.Optimizer:
        """The optimizer over the parameters of the prepared model."""

    def lr(self, step: int, facts: Facts, peak: float, schedule: Callable[[int, int], float]) -> float:
        """The learning rate of a step.

        Args:
            step: steps taken before it.
            facts: about the run.
            peak: the learning rate of the optimizer when it was made.
            schedule: (step, steps of the whole) -> the run's schedule with its warm-up, a factor from 0 to 1.
        """
        return peak * schedule(step, facts.steps)

    def gradients(self, training: Training, batch: Batch) -> list[Tensor]:
        """Forward and backward of one micro-batch; returns the loss of each pass."""
        return [training.backward(batch)]

    def after_step(self, training: Training) -> None:
        """Called after each optimizer step."""

    def after_epoch(self, training: Training) -> None:
        """Called after the last step of each pass over the data, after `after_step`."""

    def finish(self, training: Training, batches: Iterable[Batch]) -> Posterior:
        """The posterior that is saved. Called once, in one process, when all steps are taken.

        Args:
            training: the run, with its final weights.
            batches: all training examples in their order, without augmentation; may be read several times.
        """
        from varlearn.posterior import Point
        from varlearn.posterior.binding import model_tensors

        params, buffers, tied = model_tensors(training.model)
        copies = {name: value.detach().clone() for name, value in params.items()}
        return Point(copies, {name: value.detach().clone() for name, value in buffers.items()}, tied)

    def gaussian(self, training: Training) -> DiagGaussian | None:
        """A Gaussian around the weights as they are, for leave-one-out estimates; None of a method that has none.

        Args:
            training: the run, at any step.
        """
        return None

    def predictor(self, posterior: Posterior) -> Posterior | Sampler:
        """What predictions are averaged over: the saved posterior itself, or a sampler made of it.

        The model holds the posterior's mean when a sampler starts.
        """
        return posterior

    def diagnostics(self, training: Training) -> dict[str, Any]:
        """Numbers for a record of the log, under the method's name; none where empty."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What the method itself has collected: tensors, numbers, strings, and containers of them."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave; the tensors are on the CPU."""
