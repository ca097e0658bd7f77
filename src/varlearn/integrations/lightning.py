"""IVON in Lightning: a callback that keeps sample and mean apart wherever `optimizer.step(closure)` alone cannot.

Without accumulation Lightning hands all of a step to `optimizer.step(closure)`, which draws `mc_samples` samples by
itself. With accumulation, a gradient scaler or manual optimization, forward and backward run outside of `step`: there
the callback puts a sample in at the start of each batch and takes it out at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from varlearn.advice import RunFacts
from varlearn.integrations.wrapped import diagnostics, log_advice, posterior_of, variational, warn_of_clipping
from varlearn.metrics import accuracy, ece, nll
from varlearn.optim.variational import VariationalOptimizer
from varlearn.prediction import predict

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer

    _Base = Callback
else:
    _Base = object


def ivon_callback(samples: int = 0, seed: int = 0) -> Callback:
    """The callback for `Trainer(callbacks=[...])` of a module whose optimizers are, or include, IVON or VAdamW.

    - Every micro-batch of a step is taken at one sample; validation, checkpoints and an exception see the mean.
    - The optimizer's `diagnostics()` are logged at the end of each epoch, as "ivon/0/hess_mean" and so on.
    - At the end of training, advice is logged as warnings of the logger "varlearn" if something is wrong.
    - With `samples` > 0, validation also logs "averaged_nll", "averaged_accuracy" and "averaged_ece" of the validation
      loader, and the same at the mean as "at_mean_nll" and so on. The module's `forward` must return logits, and
      batches be pairs (inputs, targets) or mappings with "labels".

    Args:
        samples: S, posterior samples per validation; 0 validates at the mean only.
        seed: names the samples, the same ones at every validation.

    >>> ivon_callback(samples=-1)
    Traceback (most recent call last):
    ...
    ValueError: samples=-1 must be a whole number >= 0; 8 to 64 is usual
    """
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 0:
        raise ValueError(f"samples={samples!r} must be a whole number >= 0; 8 to 64 is usual")
    from lightning.pytorch import Callback

    return type("IVONCallback", (_Hooks, Callback), {})(samples, seed)


class _Hooks(_Base):
    def __init__(self, samples: int, seed: int) -> None:
        self._samples, self._seed = samples, seed

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        setting, off = f"gradient_clip_val={trainer.gradient_clip_val}", "Trainer(gradient_clip_val=None)"
        for optimizer in _optimizers(trainer)[:1] if trainer.gradient_clip_val else ():
            warn_of_clipping(optimizer, setting, off, scaled=_is_scaled(trainer))

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if _runs_outside_of_step(trainer, pl_module):
            for optimizer in _optimizers(trainer):
                optimizer.train()

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        _show_mean(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _show_mean(trainer)
        for optimizer in _optimizers(trainer):
            pl_module.log_dict(diagnostics(optimizer))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for optimizer in _optimizers(trainer):
            log_advice(optimizer, pl_module, RunFacts(), first=trainer.is_global_zero)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        _show_mean(trainer)

    @torch.inference_mode(False)
    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loader = trainer.val_dataloaders
        if not self._samples or trainer.sanity_checking or loader is None:
            return
        for optimizer in _optimizers(trainer)[:1]:
            posterior = posterior_of(pl_module, optimizer)
            for name, source in (("at_mean", posterior.at_mean()), ("averaged", posterior)):
                predictions = predict(pl_module, source, loader, self._samples, self._seed, progress=False)
                scores = {score.__name__: score(predictions.log_probs, predictions.targets) for score in _SCORES}
                pl_module.log_dict({f"{name}_{score}": value for score, value in scores.items()}, sync_dist=True)


_SCORES: Any = (nll, accuracy, ece)


def _optimizers(trainer: Trainer) -> list[VariationalOptimizer]:
    return [inner for optimizer in trainer.optimizers if (inner := variational(optimizer)) is not None]


def _show_mean(trainer: Trainer) -> None:
    for optimizer in _optimizers(trainer):
        optimizer.eval()


def _is_scaled(trainer: Trainer) -> bool:
    return getattr(trainer.precision_plugin, "scaler", None) is not None


def _runs_outside_of_step(trainer: Trainer, pl_module: LightningModule) -> bool:
    return _is_scaled(trainer) or trainer.accumulate_grad_batches > 1 or not pl_module.automatic_optimization
