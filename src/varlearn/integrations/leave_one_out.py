"""The leave-one-out loss as a callback of Trainer and of Lightning: an estimate of the test loss without test data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from varlearn.integrations.wrapped import posterior_of, variational
from varlearn.posterior import DiagGaussian
from varlearn.posterior.binding import unwrap
from varlearn.sensitivities import SensitivityTracker, sensitivity
from varlearn.sensitivities.example_count import with_ess

if TYPE_CHECKING:
    from lightning.pytorch import Callback
    from transformers import Trainer, TrainerCallback

Per = Literal["example", "sequence"]


class LOOLogger:
    """Computes what the callbacks log, and decides when the leave-one-out loss has stopped falling.

    Args:
        loader: training examples without augmentation, in a fixed order or with ids; a few hundred are enough.
        n: number of training examples, of tokens for a language model.
        per: "sequence" for a language model.
        shift: for `per="sequence"`: the labels are the inputs themselves, as for Hugging Face's causal models.
        patience: measurements without a new lowest loss until training should stop; None for never.

    Attributes:
        tracker: running means of the sensitivities.
        best: the lowest leave-one-out loss so far.

    >>> net = nn.Linear(1, 2)
    >>> sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> found = LOOLogger([(torch.ones(1, 1), torch.tensor([0]))], n=100).measure(net, sgd)
    >>> sorted(found), found["loo_loss"] > found["loo_train_loss"]
    (['loo_loss', 'loo_train_loss'], True)
    """

    def __init__(
        self, loader: Iterable[Any], n: float, *, per: Per = "example", shift: bool = False, patience: int | None = None
    ) -> None:
        if not 0 < n < math.inf:
            raise ValueError(f"n={n} must be > 0 and finite; use the number of training examples")
        if patience is not None and patience < 1:
            raise ValueError(f"patience={patience} must be >= 1; leave it out to train to the end")
        self._loader, self._n, self._per, self._shift, self._patience = loader, n, per, shift, patience
        self.tracker, self.best, self._waited = SensitivityTracker(probs=False), math.inf, 0

    @property
    def gives_up(self) -> bool:
        """Whether `patience` measurements have passed without a new lowest loss."""
        return self._patience is not None and self._waited >= self._patience

    @torch.enable_grad()
    def measure(self, model: nn.Module, optimizer: Any) -> dict[str, float]:
        """The losses "loo_loss" and "loo_train_loss" of the same examples, at the weights as they are.

        Args:
            model: as the framework hands it out; its modes are restored.
            optimizer: IVON, VAdamW, AdamW or SGD, or a wrapper of it, with no sample in the weights.
        """
        inner: nn.Module = unwrap(model)
        modes = {module: module.training for module in inner.modules()}
        inner.eval()
        try:
            q = with_ess(self._posterior(inner, optimizer), self._n)
            if self._per == "sequence":
                found = sensitivity(inner, q, self._loader, per="sequence", shift=self._shift, progress=False)
            else:
                found = sensitivity(inner, q, self._loader, progress=False)
        finally:
            for module, mode in modes.items():
                module.training = mode
        self.tracker.update(found)
        loss, loo = found.loss.double().mean().item(), found.loo_loss.double().mean().item()
        self.best, self._waited = (loo, 0) if loo < self.best else (self.best, self._waited + 1)
        return {"loo_loss": loo, "loo_train_loss": loss}

    def _posterior(self, model: nn.Module, optimizer: Any) -> DiagGaussian:
        if variational(optimizer) is not None:
            return posterior_of(model, optimizer)
        while (inner := getattr(optimizer, "optimizer", None)) is not None:
            optimizer = inner
        return DiagGaussian.from_optimizer(model, optimizer, ess=float(self._n))


def trainer_loo_callback(trainer: Trainer, logger: LOOLogger) -> TrainerCallback:
    """A callback for `trainer.add_callback(...)` that logs "loo_loss" after each epoch, and stops by it if told.

    Args:
        trainer: that trains the model.
        logger: what is measured; batches are mappings with "labels".
    """
    from transformers import TrainerCallback

    class LeaveOneOut(TrainerCallback):
        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            optimizer = variational(trainer.optimizer)
            if optimizer is not None:
                optimizer.eval()
            trainer.log(logger.measure(trainer.model, trainer.optimizer))  # type: ignore[arg-type]
            control.should_training_stop |= logger.gives_up
            return control

    return LeaveOneOut()


def lightning_loo_callback(logger: LOOLogger) -> Callback:
    """A callback for Lightning's `Trainer(callbacks=[...])`: logs "loo_loss" after each epoch, and stops by it if told.

    Put it behind `ivon_callback`. The module's `forward` must return logits.

    Args:
        logger: what is measured.
    """
    from lightning.pytorch import Callback

    class LeaveOneOut(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            optimizer = variational(trainer.optimizers[0])
            if optimizer is not None:
                optimizer.eval()
            pl_module.log_dict(logger.measure(pl_module, trainer.optimizers[0]))
            trainer.should_stop |= logger.gives_up

    return LeaveOneOut()
