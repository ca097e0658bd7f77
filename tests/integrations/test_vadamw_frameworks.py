"""Variational AdamW in Trainer, Lightning, Accelerate and PEFT: as in a plain loop, and clipping leaves v alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments

from tests.integrations import accelerate_loops, test_lightning
from tests.integrations.recording_trainer import Recording, bert, examples, flat
from varlearn import VAdamW
from varlearn.integrations.transformers import diagnostics_callback
from varlearn.integrations.wrapped import posterior_of
from varlearn.posterior import DiagGaussian, load

pytestmark = test_lightning.pytestmark

SETTINGS: dict[str, Any] = {"lr": 0.01, "n": 16, "batch_size": 4, "betas": (0.9, 0.95), "ess": 200.0, "seed": 7}


def trainer(folder: Path, model: nn.Module | None = None, **options: Any) -> Recording:
    """Hugging Face's defaults: clipping at 1, so every gradient of norm above 1 is clipped."""
    defaults: dict[str, Any] = {"per_device_train_batch_size": 4, "max_steps": 4, "lr_scheduler_type": "constant"}
    defaults |= {"weight_decay": 0.01, "use_cpu": True, "report_to": [], "save_strategy": "no"}
    defaults |= {"disable_tqdm": True, "logging_strategy": "no"}
    return Recording(
        bert() if model is None else model,
        TrainingArguments(str(folder), **(defaults | options)),
        train_dataset=examples(),
        eval_dataset=examples(13),
        optimizer_cls_and_kwargs=(VAdamW, SETTINGS),
        posterior_samples=2,
    )


def replay(done: Recording, clip: float | None, **settings: Any) -> tuple[nn.Module, VAdamW]:
    """The same batches in a plain loop with blocks; the Trainer's groups are those that decay and those that do not."""
    model = bert()
    decayed = set(done.get_decay_parameter_names(model))
    groups = [
        {"params": [p for n, p in model.named_parameters() if (n in decayed) == decay], "weight_decay": 0.01 * decay}
        for decay in (True, False)
    ]
    opt = VAdamW(groups, **(SETTINGS | {"max_grad_norm": clip} | settings))
    for batch in done.batches:
        with opt.sampled_params(train=True):
            opt.zero_grad()
            model(**batch).loss.backward()
        opt.step()
    return model, opt


def second_moments(opt: VAdamW) -> Tensor:
    return torch.cat([opt.state[p]["exp_avg_sq"].flatten() for group in opt.param_groups for p in group["params"]])


@pytest.mark.parametrize("clip", [0.05, 1.0])
def test_the_trainer_clips_the_mean_and_not_the_variance(tmp_path: Path, clip: float) -> None:
    """`max_grad_norm` of the Trainer does what `max_grad_norm` of the optimizer does, without a warning."""
    done = trainer(tmp_path, max_grad_norm=clip)
    done.train()
    opt: VAdamW = done.optimizer.optimizer
    model, plain = replay(done, clip)
    torch.testing.assert_close(flat(done.model), flat(model), rtol=0.0, atol=5e-5)
    torch.testing.assert_close(second_moments(opt), second_moments(plain), rtol=2e-3, atol=1e-10)


def test_the_trainer_saves_resumes_evaluates_and_logs(tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 2, "lr_scheduler_type": "linear"}
    options |= {"logging_strategy": "steps", "logging_steps": 1}
    whole = trainer(tmp_path, bert(dropout=0.1), **options)
    whole.train()
    again = trainer(tmp_path, bert(dropout=0.1), **options)
    again.add_callback(diagnostics_callback(again))
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert torch.equal(flat(whole.model), flat(again.model))
    one, two = whole.posterior, again.posterior
    assert isinstance(one, DiagGaussian)
    assert isinstance(two, DiagGaussian)
    assert all(torch.equal(value, two.std[name]) for name, value in one.std.items())
    saved = load(tmp_path / "checkpoint-4" / "posterior.safetensors", bert())
    assert all(torch.equal(value, saved.mean[name]) for name, value in one.mean.items())
    metrics = again.evaluate()
    assert metrics["eval_averaged_loss"] != metrics["eval_at_mean_loss"]
    assert any("vadamw/0/effective_params" in record for record in again.state.log_history)


class Net(test_lightning.Net):
    def configure_optimizers(self) -> VAdamW:  # type: ignore[override]
        return VAdamW(self.parameters(), **self.settings)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_lightning_clips_the_mean_and_not_the_variance(tmp_path: Path, accumulate: int) -> None:
    runs = []
    for clip, settings in ((0.05, {}), (None, {"max_grad_norm": 0.05})):
        module = Net()
        module.settings = SETTINGS | settings
        run = test_lightning.fit(module, tmp_path, gradient_clip_val=clip, accumulate_grad_batches=accumulate)
        runs.append((test_lightning.flat(module), second_moments(run.optimizers[0])))  # type: ignore[arg-type]
        assert any(name.startswith("vadamw/0/") for name in run.logged_metrics)
    torch.testing.assert_close(runs[0][0], runs[1][0], rtol=0.0, atol=5e-5)
    torch.testing.assert_close(runs[0][1], runs[1][1], rtol=2e-3, atol=1e-10)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_accelerate_clips_the_mean_and_not_the_variance(accumulate: int) -> None:
    runs = []
    for clip, settings in ((0.05, {}), (None, {"max_grad_norm": 0.05})):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
        plain = accelerate_loops.net()
        opt = VAdamW.for_model(plain, **(SETTINGS | settings))
        model, optimizer, loader = accelerator.prepare(plain, opt, accelerate_loops.loader())
        for inputs, targets in [batch for _ in range(3) for batch in loader]:
            with accelerator.accumulate(model):
                optimizer.train()
                accelerator.backward(cross_entropy(model(inputs), targets))
                if clip is not None and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
        assert isinstance(posterior_of(model, optimizer), DiagGaussian)
        runs.append((accelerate_loops.flat(plain), second_moments(opt)))
    torch.testing.assert_close(runs[0][0], runs[1][0], rtol=0.0, atol=5e-5)
    torch.testing.assert_close(runs[0][1], runs[1][1], rtol=2e-3, atol=1e-10)


def test_an_adapter_of_peft(tmp_path: Path) -> None:
    """B starts at 0 and has no noise until its first measurement; the frozen model is not sampled."""
    config = LoraConfig(task_type="SEQ_CLS", r=2, lora_alpha=4, target_modules=["query", "value"])
    model: Any = get_peft_model(bert(), config)  # type: ignore[arg-type]
    start = {name: value.detach().clone() for name, value in model.named_parameters() if not value.requires_grad}
    done = trainer(tmp_path, model, max_steps=12)
    done.train()
    posterior = done.posterior
    assert isinstance(posterior, DiagGaussian)
    assert set(posterior.mean) == {name for name, value in model.named_parameters() if value.requires_grad}
    assert all(torch.equal(value, model.get_parameter(name)) for name, value in start.items())
    ups = [std for name, std in posterior.std.items() if "lora_B" in name]
    assert ups
    assert all(1e-6 < float(std.max()) < 1.0 for std in ups)
    assert isinstance(done, Trainer)
