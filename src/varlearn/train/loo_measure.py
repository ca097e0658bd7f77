"""The leave-one-out loss of a run while it trains: on which examples, and what is kept of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from varlearn.data.batches import Batches
from varlearn.data.examples import Examples
from varlearn.data.seeds import generator
from varlearn.methods import Task
from varlearn.posterior import DiagGaussian
from varlearn.sensitivities import Sensitivity, SensitivityTracker, TokenSensitivity, sensitivity
from varlearn.sensitivities.example_count import with_ess
from varlearn.train.build import build_batches
from varlearn.train.config import Run
from varlearn.train.training import Training

SHARE = 0.1  # of the cost of training, at most
COST, RECURRENT_COST = 4, 25  # of one example, in forward and backward passes in a batch


@dataclass(frozen=True)
class ChosenExamples:
    """Some of the examples, in batches with ids.

    Attributes:
        batches: of all examples.
        rows: the numbers of those that are given.
    """

    batches: Batches
    rows: Tensor

    def __len__(self) -> int:
        """Number of batches."""
        return math.ceil(len(self.rows) / self.batches.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """The batches (inputs, targets, ids)."""
        return self.batches.chosen(self.rows)


class LOOMeasure:
    """Measures the leave-one-out loss on the same training examples each time, without augmentation.

    Args:
        run: `train.loo_every`, `loo_examples` and `loo_patience` are read.
        training: the run.
        examples: what it learns from.
        ids: of the examples (of a text: of its windows), one each; None numbers them.

    Attributes:
        batches: the examples that are measured, with their ids.
        tracker: the running means of all measurements so far.
        best: the lowest leave-one-out loss so far.
        waited: measurements since then.
    """

    def __init__(self, run: Run, training: Training, examples: Examples, ids: Tensor | None = None) -> None:
        self._run, self._training = run, training
        self._task: Task = training.facts.task
        if training.method.gaussian(training) is None:
            raise ValueError(
                f"train.loo_every={run.train.loo_every} needs a variance, and optim.name={run.optim.name!r} has none; "
                "leave it out, or use another method"
            )
        if run.train.loo_diagonal and self._task == "language":
            raise ValueError(
                "train.loo_diagonal=True has one backward pass per logit, too many for a language model; leave it out"
            )
        self.batches = self._chosen(examples, ids)
        self.tracker = SensitivityTracker(probs=len(examples.classes) <= 100)
        self.best, self.waited = math.inf, 0

    @property
    def gives_up(self) -> bool:
        """Whether `loo_patience` measurements have passed without a new lowest loss."""
        patience = self._run.train.loo_patience
        return patience is not None and self.waited >= patience

    def measure(self) -> tuple[dict[str, float], bool]:
        """The scores at the weights as they are, and whether the leave-one-out loss is the lowest so far."""
        training = self._training
        posterior = training.method.gaussian(training)
        assert posterior is not None
        settings = {"diagonal": True} if self._run.train.loo_diagonal else {}
        q = with_ess(posterior, training.facts.n)
        found = task_sensitivity(self._task, training.model, q, self.batches, **settings)
        self.tracker.update(found)
        scores = loo_scores(found)
        is_best = scores["nll"] < self.best
        self.best, self.waited = (scores["nll"], 0) if is_best else (self.best, self.waited + 1)
        return scores, is_best

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run goes on from."""
        return {"tracker": self.tracker.state_dict(), "best": self.best, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.tracker.load_state_dict(state["tracker"])
        self.best, self.waited = state["best"], state["waited"]

    def _chosen(self, examples: Examples, ids: Tensor | None) -> ChosenExamples:
        """A random choice that depends on the run's seed alone, in the order of the ids."""
        everything = build_batches(self._run, examples, train=False, ids=True if ids is None else ids)
        wanted = self._run.train.loo_examples or self._affordable(len(examples.classes))
        order = torch.randperm(everything.count, generator=generator(self._run.seed, "loo"))
        return ChosenExamples(everything, order[:wanted].sort().values)

    def _affordable(self, classes: int) -> int:
        """As many examples as cost a tenth of the training between two measurements."""
        training, every = self._training, self._run.train.loo_every
        batches = every * self._run.train.accumulate if every else len(training.parts.batches)
        trained = batches * self._run.data.batch_size  # by each process, and each of them measures
        is_recurrent = any(isinstance(module, nn.RNNBase) for module in training.model.modules())
        cost = RECURRENT_COST if is_recurrent else COST
        if self._run.train.loo_diagonal:  # a backward pass for each output
            cost *= max(1, classes / COST)
        return max(1, int(SHARE * trained / cost))


def task_sensitivity(
    task: Task, model: nn.Module, posterior: DiagGaussian, batches: Iterable[Any], **settings: Any
) -> Sensitivity | TokenSensitivity:
    """`sensitivity` as the task needs it: of whole windows for a language model; the modes of the model are restored.

    Args:
        task: of the run.
        model: is in evaluation mode meanwhile.
        posterior: with ess = n.
        batches: with ids.
        settings: further ones of `sensitivity`.
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    settings = {"progress": False, **settings}
    try:
        if task == "language":
            return sensitivity(model, posterior, batches, per=cast("Literal['sequence']", "sequence"), **settings)
        return sensitivity(model, posterior, batches, **settings)
    finally:
        for module, mode in modes.items():
            module.training = mode


def loo_scores(found: Sensitivity | TokenSensitivity) -> dict[str, float]:
    """The scores that stand in the log: "nll" is the leave-one-out loss, "train_nll" the loss of the same examples.

    >>> even = torch.zeros(1, 2)
    >>> found = Sensitivity(torch.tensor([7]), torch.tensor([0]), even, even, even, torch.zeros(1))
    >>> loo_scores(found) == {"nll": found.loss.item(), "train_nll": found.loss.item(), "accuracy": 1.0, "examples": 1}
    True
    """
    if isinstance(found, TokenSensitivity):
        tokens = found.tokens.sum()
        loo = float(found.token_loo_loss.double().sum() / tokens)
        loss = float(found.token_loss.double().sum() / tokens)
        return {"nll": loo, "train_nll": loss, "perplexity": math.exp(min(loo, 700.0)), "examples": len(found.ids)}
    scores = {"nll": found.loo_loss.double().mean().item(), "train_nll": found.loss.double().mean().item()}
    if not found.targets.is_floating_point():
        scores["accuracy"] = (found.loo_outputs.argmax(1) == found.targets).double().mean().item()
    return {**scores, "examples": len(found.ids)}
