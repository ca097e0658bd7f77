"""VAdamW and IVON in Hugging Face's Trainer, and in those made from it (TRL).

The optimizers need nothing from here, because the Trainer calls `optimizer.train()` and `optimizer.eval()`::

    args = TrainingArguments("out")
    Trainer(model, args, train_dataset=data, optimizers=(trainer_optimizer(model, args, data), None))

`PosteriorTrainer` adds evaluation averaged over the posterior, and its file beside the model's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import SequentialSampler

from varlearn.integrations.evaluation import Average, Kind, kind_of, summary
from varlearn.integrations.peft import is_peft_model, load_adapter_posterior
from varlearn.integrations.wrapped import (
    POSTERIOR_FILE,
    diagnostics,
    log_advice,
    posterior_of,
    save_posterior,
    trainer_facts,
    variational,
    warn_of_clipping,
)
from varlearn.posterior import Point, check_fits, components, load
from varlearn.posterior.binding import unwrap
from varlearn.prediction.guard import preserved
from varlearn.prediction.loader_batches import outputs_of
from varlearn.prediction.sample_loop import strata
from varlearn.prediction.temperature import best_temperature
from varlearn.types import Posterior

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback

    _Base = Trainer
else:
    _Base = object


class PosteriorTrainer(_Base):
    """A mixin for `transformers.Trainer` and its subclasses: `class Mine(PosteriorTrainer, Trainer)`, in this order.

    - `evaluate` and `predict` also average over `posterior_samples` samples: metrics "eval_averaged_loss" and
      "eval_averaged_" + each of `compute_metrics`, beside the usual ones at the mean. The averaged loss is a mean over
      examples or tokens, the Trainer's own one over batches: compare it with "eval_at_mean_loss".
    - `predict` returns averaged log-probabilities; for language models, whose would not fit into memory, the mean's
      output.
    - `save_model` and checkpoints have a `posterior.safetensors`; for PEFT models under the adapter's keys.
    - After `load_best_model_at_end` the posterior is the best checkpoint's, too.
    - `calibrate` fits the posterior's temperature to held-out data.
    - An interrupted `train` leaves the mean in the weights.

    Args:
        posterior_samples: S; evaluation takes S + 2 passes over the data. 0 evaluates at the mean only.
        posterior_seed: names the samples; the same ones at every evaluation, so that differences are the model's.
        posterior: to evaluate with, e.g. one that was loaded; without it, what the Trainer's own IVON has learned.

    >>> PosteriorTrainer(posterior_samples=-1)
    Traceback (most recent call last):
    ...
    ValueError: posterior_samples=-1 must be a whole number >= 0; 8 to 64 is usual
    """

    def __init__(
        self,
        *args: Any,
        posterior_samples: int = 8,
        posterior_seed: int = 0,
        posterior: Posterior | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(posterior_samples, bool) or not isinstance(posterior_samples, int) or posterior_samples < 0:
            raise ValueError(f"posterior_samples={posterior_samples!r} must be a whole number >= 0; 8 to 64 is usual")
        self.posterior_samples, self.posterior_seed = posterior_samples, posterior_seed
        self._given_posterior = posterior
        self._kind: Kind | None = None
        self._in_sampled_pass = False
        super().__init__(*args, **kwargs)

    @property
    def posterior(self) -> Posterior | None:
        """The posterior of the model as it is now, or None where no IVON has trained and none was given."""
        if self._given_posterior is not None:
            return self._given_posterior
        optimizer = variational(self.optimizer)
        return None if optimizer is None else posterior_of(self._plain_model(), optimizer)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """As the Trainer's, with a warning if its clipping would reach the variance."""
        optimizer = super().create_optimizer(*args, **kwargs)
        inner, norm = variational(optimizer), self.args.max_grad_norm
        if inner is not None and norm > 0:
            warn_of_clipping(
                inner, f"max_grad_norm={norm}", "TrainingArguments(max_grad_norm=0.0)", scaled=self.args.fp16
            )
        return optimizer

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; the mean is in the weights afterwards, whatever happens."""
        self._given_posterior = None
        try:
            result = super().train(*args, **kwargs)
        finally:
            if (optimizer := variational(self.optimizer)) is not None:
                optimizer.eval()
        best = self.state.best_model_checkpoint
        if self.args.load_best_model_at_end and best is not None and optimizer is not None:
            self._given_posterior = self._load(os.path.join(best, POSTERIOR_FILE))
        return result

    def calibrate(self, eval_dataset: Any = None) -> Posterior:
        """Fit the posterior's temperature by the averaged loss on held-out data; see `varlearn.calibrate`.

        Later evaluations, predictions and `save_model` use the result, until the next `train`. It costs about 14
        evaluations of the average.

        Args:
            eval_dataset: data that the model was not trained on and that will not test it; the Trainer's own if None.
        """
        posterior = self.posterior
        if posterior is None or not self.posterior_samples:
            raise ValueError(
                f"there is nothing to calibrate: posterior={posterior}, posterior_samples={self.posterior_samples}; "
                "train with VAdamW or IVON, and average over at least one sample"
            )
        loader = self.get_eval_dataloader(eval_dataset)

        def nll(temperature: float) -> float:
            found = self._average(loader, posterior.at_temperature(temperature), None).loss()  # type: ignore[attr-defined]
            if found is None:
                raise ValueError("the data have no labels, and the temperature is fitted to them; pass eval_dataset")
            return found if math.isfinite(found) else math.inf

        self._given_posterior = posterior.at_temperature(best_temperature(nll))  # type: ignore[attr-defined]
        return self._given_posterior

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As the Trainer's, with the posterior beside the model."""
        posterior = self.posterior if self.args.should_save else None
        if posterior is not None:
            save_posterior(posterior, self._plain_model(), output_dir or str(self.args.output_dir))
        super().save_model(output_dir, _internal_call)

    def evaluation_loop(
        self,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        """One pass at the mean as the Trainer's, then the posterior's average."""
        output = super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
        posterior = self.posterior if self.posterior_samples else None
        if posterior is None:
            return output
        for _, component in components(posterior):
            check_fits(component, self._plain_model())
        labels = output.label_ids if len(self.label_names) == 1 else None
        at_mean = self._average(dataloader, Point(posterior.mean, fixed=posterior.fixed), labels)
        averaged = self._average(dataloader, posterior, labels)
        metrics: dict[str, Any] = {"at_mean_loss": at_mean.loss(), "averaged_loss": averaged.loss()}
        if averaged.kind != "tokens":
            output = output._replace(predictions=averaged.predictions.numpy())
            metrics |= self._averaged_metrics(averaged, output.label_ids)
        added = {f"{metric_key_prefix}_{name}": value for name, value in metrics.items() if value is not None}
        return output._replace(metrics=(output.metrics or {}) | added)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor | None, Any, Any]:
        """As the Trainer's, or in a pass of the average: no loss, and what is averaged in the place of logits."""
        if not self._in_sampled_pass:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        inputs = dict(self._prepare_inputs(inputs))
        labels = inputs.get(self.label_names[0]) if len(self.label_names) == 1 else None
        config = getattr(self._plain_model(), "config", None)
        if not getattr(config, "is_encoder_decoder", False):  # these make their decoder's inputs from the labels
            inputs = {name: value for name, value in inputs.items() if name not in self.label_names}
        with torch.no_grad(), self.compute_loss_context_manager():
            logits = outputs_of(model(**inputs))
        if not isinstance(logits, Tensor):
            raise TypeError(
                f"the model returned a {type(logits).__name__} without `logits`, which averaged evaluation needs; "
                "use posterior_samples=0"
            )
        self._kind = kind_of(logits, labels, getattr(config, "vocab_size", None))
        return None, summary(logits, labels, self._kind, self._shifts()), labels

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        """As the Trainer's, in an order that is the same for every pass; grouping by length shuffles anew each time."""
        sampler = super()._get_eval_sampler(eval_dataset)
        return sampler if sampler is None or isinstance(sampler, SequentialSampler) else list(sampler)

    def _average(self, dataloader: Any, posterior: Posterior, labels: Any) -> Average:
        """The average over the posterior's samples, in as many passes of the Trainer's loop."""
        model, average = self._plain_model(), None
        parts = strata(posterior, self.posterior_samples)
        with preserved(model) as restore, self._sampled_passes():
            for number, (weight, samples, sampler) in enumerate(parts):
                restore()
                sampler.start(model)
                for draw in range(samples):
                    sampler.draw(model, self.posterior_seed, draw * len(parts) + number)
                    output = super().evaluation_loop(dataloader, "Prediction", prediction_loss_only=False)
                    assert self._kind is not None
                    average = average or Average(self._kind, self._shifts(), labels)
                    average.add(output.predictions, output.label_ids, weight / samples)
        assert average is not None
        return average

    @contextmanager
    def _sampled_passes(self) -> Iterator[None]:
        kept: Any = self.compute_metrics, self.preprocess_logits_for_metrics
        self.compute_metrics = self.preprocess_logits_for_metrics = None
        self._in_sampled_pass = True
        try:
            yield
        finally:
            self._in_sampled_pass = False
            self.compute_metrics, self.preprocess_logits_for_metrics = kept

    def _averaged_metrics(self, average: Average, labels: Any) -> dict[str, Any]:
        if self.compute_metrics is None or labels is None or self.args.batch_eval_metrics:
            return {}
        from transformers import EvalPrediction

        predictions = average.predictions
        if self.preprocess_logits_for_metrics is not None:
            predictions = self.preprocess_logits_for_metrics(predictions, torch.as_tensor(labels))
        metrics = self.compute_metrics(EvalPrediction(predictions=predictions.numpy(), label_ids=labels))
        return {f"averaged_{name}": value for name, value in metrics.items()}

    def _shifts(self) -> bool:
        """Whether the model's logits are about the next token: its own loss function says so."""
        model = self._plain_model()
        encoder_decoder = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
        loss = getattr(model, "loss_function", None)
        return getattr(loss, "__name__", "") == "ForCausalLMLoss" and not encoder_decoder

    def _plain_model(self) -> nn.Module:
        model = self.model
        assert isinstance(model, nn.Module)
        return unwrap(model)

    def _load(self, path: str) -> Posterior:
        model = self._plain_model()
        return load_adapter_posterior(path, model) if is_peft_model(model) else load(path, model)


def diagnostics_callback(trainer: Trainer) -> TrainerCallback:
    """A callback that logs the optimizer's `diagnostics()` whenever the Trainer logs its training loss, and advice.

    At the end of training, what is wrong is logged as warnings of the logger "varlearn"; see `varlearn.advice`.

    Names are "ivon/0/hess_mean" or "vadamw/0/effective_params" and so on, 0 being the parameter group; see
    `varlearn.optim.GroupDiagnostics` and `varlearn.optim.IVONDiagnostics`.

    Args:
        trainer: whose `log` reaches all its reporters: `trainer.add_callback(diagnostics_callback(trainer))`.
    """
    from transformers import TrainerCallback

    class Diagnostics(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            optimizer = variational(trainer.optimizer)
            if optimizer is not None and "loss" in kwargs["logs"]:
                trainer.log(diagnostics(optimizer))

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            optimizer = variational(trainer.optimizer)
            if optimizer is not None:
                log_advice(optimizer, kwargs["model"], trainer_facts(state), first=state.is_world_process_zero)

    return Diagnostics()
