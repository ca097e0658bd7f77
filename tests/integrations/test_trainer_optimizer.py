"""VAdamW with the Trainer's own settings, and its posterior calibrated on held-out data."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from tests.integrations.recording_trainer import batches, bert, examples
from tests.integrations.recording_trainer import trainer as ivon_trainer
from varlearn import calibrate
from varlearn.integrations.trainer_optimizer import trainer_optimizer
from varlearn.integrations.transformers import PosteriorTrainer
from varlearn.optim.prior_widths import suggested_lr
from varlearn.posterior import DiagGaussian, load


class Averaging(PosteriorTrainer, Trainer):
    """With averaged evaluation."""


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    quiet = {"use_cpu": True, "report_to": [], "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no"}
    return TrainingArguments(str(folder), per_device_train_batch_size=4, **quiet | options)


def trained(folder: Path, **options: Any) -> Averaging:
    model, args = bert(), arguments(folder, learning_rate=1e-2, **options)
    optimizer = trainer_optimizer(model, args, examples())
    done = Averaging(
        model,
        args,
        train_dataset=examples(),
        eval_dataset=examples(13),
        optimizers=(optimizer, None),
        posterior_samples=4,
    )
    done.train()
    return done


@pytest.mark.parametrize("options", [{"num_train_epochs": 3}, {"gradient_accumulation_steps": 3}, {"max_steps": 5}])
def test_it_knows_the_steps_that_the_trainer_takes(tmp_path: Path, options: dict[str, Any]) -> None:
    done = trained(tmp_path, **options)
    (group, *_) = done.optimizer.optimizer.param_groups
    assert group["steps"] == done.state.global_step
    assert group["lr"] == 0.0  # the Trainer's schedule has ended
    assert (group["n"], group["batch_size"]) == (16, 4 * options.get("gradient_accumulation_steps", 1))


def test_the_settings_are_the_arguments_and_can_be_replaced(tmp_path: Path) -> None:
    model, args = bert(), arguments(tmp_path, weight_decay=0.1, adam_beta2=0.95, seed=3)
    groups = trainer_optimizer(model, args, examples(), terms=6).param_groups
    assert {group["weight_decay"] for group in groups} == {0.1, 0.0}
    assert all((param.dim() >= 2) == (group["weight_decay"] > 0) for group in groups for param in group["params"])
    assert (groups[0]["betas"], groups[0]["lr"], groups[0]["seed"]) == ((0.9, 0.95), 5e-5, 3)
    assert (groups[0]["n"], groups[0]["batch_size"]) == (96, 24)
    assert trainer_optimizer(model, args, examples(), lr=0.5).param_groups[0]["lr"] == 0.5
    scratch = trainer_optimizer(model, args, examples(), pretrained=False).param_groups[0]["lr"]
    assert scratch == suggested_lr(model)


def test_calibrate_finds_the_temperature_of_the_plain_function_and_it_is_saved(tmp_path: Path) -> None:
    done = trained(tmp_path, num_train_epochs=10)
    before = done.posterior
    expected = calibrate(done.model, before, batches(examples(13), 8), samples=4, progress=False)  # type: ignore[arg-type]
    found = done.calibrate()
    assert isinstance(found, DiagGaussian)
    assert found.temperature == pytest.approx(expected.temperature, rel=0.2)  # type: ignore[union-attr]
    metrics = done.evaluate()
    assert metrics["eval_averaged_loss"] <= metrics["eval_at_mean_loss"] + 1e-6
    done.save_model()
    saved = load(tmp_path / "posterior.safetensors", done.model)
    assert saved.temperature == found.temperature  # type: ignore[union-attr]
    assert torch.equal(saved.mean["classifier.weight"], found.mean["classifier.weight"])


def test_there_must_be_something_to_calibrate(tmp_path: Path) -> None:
    done = ivon_trainer(tmp_path, samples=0)
    done.train()
    with pytest.raises(ValueError, match="posterior_samples=0; train with VAdamW or IVON"):
        done.calibrate()
    assert isinstance(done.model, nn.Module)
