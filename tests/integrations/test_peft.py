"""PEFT adapters: only they are random, files use their own keys, and the posterior comes back onto a fresh model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from examples import peft_lora
from varlearn import IVON
from varlearn.integrations.peft import adapter_posterior, is_peft_model, load_adapter_posterior, save_adapter_posterior
from varlearn.integrations.transformers import PosteriorTrainer
from varlearn.integrations.wrapped import posterior_of
from varlearn.posterior import DiagGaussian, Point, save
from varlearn.prediction import predict

SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "num_labels": 3,
}


def base() -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**SIZES))


def lora(adapter: str = "default", **options: Any) -> PeftModel:
    """With its classifier in `modules_to_save`, which PEFT adds for SEQ_CLS."""
    config = LoraConfig(task_type="SEQ_CLS", r=2, lora_alpha=4, target_modules=["query", "value"], **options)
    return get_peft_model(base(), config, adapter_name=adapter)  # type: ignore[return-value]


def batch(count: int = 12) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {"input_ids": torch.randint(1, 32, (count, 6), generator=generator), "labels": torch.arange(count) % 3}


def trained(steps: int = 5) -> tuple[PeftModel, IVON]:
    model = lora()
    params = [value for value in model.parameters() if value.requires_grad]
    opt = IVON(params, lr=0.3, ess=50.0, hess_init=0.1, betas=(0.9, 0.9), weight_decay=0.01, seed=3)
    for _ in range(steps):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            model(**batch()).loss.backward()
        opt.step()
    return model, opt


def test_only_the_adapter_is_sampled() -> None:
    model, opt = trained(steps=1)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    with opt.sampled_params():
        changed = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert changed == {name for name, value in model.named_parameters() if value.requires_grad}
    assert all("lora_" in name or "modules_to_save" in name for name in changed)
    start = dict(base().named_parameters())
    query = "bert.encoder.layer.0.attention.self.query.weight"
    assert torch.equal(
        model.get_parameter(f"base_model.model.{query.replace('.weight', '.base_layer.weight')}"), start[query]
    )


def test_the_posterior_has_the_adapter_alone() -> None:
    model, opt = trained()
    posterior = posterior_of(model, opt)
    assert posterior.fixed is None  # no copy of the frozen model
    assert set(posterior.mean) == {name for name, value in model.named_parameters() if value.requires_grad}
    assert is_peft_model(model)
    assert not is_peft_model(base())


def test_the_file_has_the_keys_of_the_adapter(tmp_path: Path) -> None:
    model, opt = trained()
    model.save_pretrained(tmp_path)
    save_adapter_posterior(adapter_posterior(model, opt), model, tmp_path / "posterior.safetensors")
    with safe_open(tmp_path / "adapter_model.safetensors", "pt") as adapter:
        keys = {key: adapter.get_tensor(key) for key in adapter.keys()}  # noqa: SIM118
    with safe_open(tmp_path / "posterior.safetensors", "pt") as posterior:
        names = set(posterior.keys())
        means = {key: posterior.get_tensor(f"mean/{key}") for key in keys}
    assert names == {f"{part}/{key}" for part in ("mean", "hess") for key in keys}
    assert all(torch.equal(value, means[key]) for key, value in keys.items())


@pytest.mark.parametrize("adapter", ["default", "other"])
def test_loaded_onto_a_fresh_model_and_averaged(tmp_path: Path, adapter: str) -> None:
    model, opt = trained()
    posterior = adapter_posterior(model, opt)
    save_adapter_posterior(posterior, model, tmp_path / "posterior.safetensors")
    fresh = lora(adapter)
    read = load_adapter_posterior(tmp_path / "posterior.safetensors", fresh, adapter)
    inputs = [batch()]
    expected = predict(model, posterior, inputs, samples=4).log_probs
    got = predict(fresh, read, inputs, samples=4).log_probs
    at_mean = predict(fresh, read.at_mean(), inputs).log_probs
    torch.testing.assert_close(at_mean, predict(model, posterior.at_mean(), inputs).log_probs)
    assert (expected - at_mean).abs().max() > 1e-3
    if adapter == "default":
        torch.testing.assert_close(got, expected)  # the noise of a weight depends on its name's place
    else:
        assert (got - at_mean).abs().max() > 1e-3


def test_merged_weights_are_those_of_the_mean() -> None:
    model, opt = trained()
    expected = predict(model, adapter_posterior(model, opt).at_mean(), [batch()]).log_probs
    merged = model.merge_and_unload()
    with torch.no_grad():
        logits = merged.eval()(input_ids=batch()["input_ids"]).logits
    torch.testing.assert_close(torch.log_softmax(logits, -1), expected, rtol=1e-4, atol=1e-5)


class Averaging(PosteriorTrainer, Trainer):
    """Evaluates at the mean and averaged."""


def trainer_of(folder: Path, micro: int = 4, accumulate: int = 1, **options: Any) -> Averaging:
    rows = [
        {"input_ids": tokens.tolist(), "labels": int(label)}
        for tokens, label in zip(batch()["input_ids"], batch()["labels"], strict=True)
    ]
    ivon = {"lr": 0.3, "ess": 50.0, "hess_init": 0.1, "betas": (0.9, 0.9), "weight_decay": 0.01, "seed": 7}
    ivon |= options.pop("ivon", {})
    fixed: dict[str, Any] = {"max_steps": 4, "weight_decay": 0.01, "max_grad_norm": 0.0, "save_strategy": "no"}
    quiet: dict[str, Any] = {"use_cpu": True, "report_to": [], "disable_tqdm": True}
    batches = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": accumulate}
    trainer = Averaging(
        lora(),
        TrainingArguments(str(folder), **(batches | fixed | quiet | options)),
        train_dataset=rows,
        eval_dataset=rows,
        optimizer_cls_and_kwargs=(IVON, ivon),
        posterior_samples=3,
    )
    trainer.loss_is_scaled_for_ga = False
    return trainer


def test_the_trainer_saves_and_evaluates_the_adapter(tmp_path: Path) -> None:
    trainer = trainer_of(
        tmp_path,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="averaged_loss",
    )
    trainer.train()
    metrics = trainer.evaluate()
    trainer.save_model()
    read = load_adapter_posterior(tmp_path / "posterior.safetensors", fresh := lora())
    oracle = predict(fresh, read, [batch()], samples=3)
    loss = -oracle.log_probs[torch.arange(12), batch()["labels"]].mean().item()
    assert metrics["eval_averaged_loss"] == pytest.approx(loss, rel=1e-4)


def trainable(trainer: Averaging) -> list[Tensor]:
    return [value for value in trainer.model.parameters() if value.requires_grad]


def flat(trainer: Averaging) -> Tensor:
    return torch.cat([value.detach().flatten().clone() for value in trainable(trainer)])


def test_the_trainer_accumulates(tmp_path: Path) -> None:
    ends = []
    for micro, count in ((4, 1), (2, 2)):
        trainer = trainer_of(tmp_path, micro, count)
        trainer.train()
        ends.append(flat(trainer))
    torch.testing.assert_close(*ends, rtol=0, atol=1e-5)


def test_ivon_clips_in_the_trainer(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, max_steps=1, ivon={"max_grad_norm": 0.01})
    trainer.train()
    momentum = torch.cat([trainer.optimizer.state[value]["momentum"].flatten() for value in trainable(trainer)])
    assert momentum.norm().item() == pytest.approx(0.1 * 0.01, rel=1e-3)  # 1 - beta1 is 0.1


def test_the_trainer_resumes_bitwise_in_bf16(tmp_path: Path) -> None:
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "bf16": True}
    whole, again, full = trainer_of(tmp_path, **options), trainer_of(tmp_path, **options), trainer_of(tmp_path)
    for trainer in (whole, full):
        trainer.train()
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert torch.equal(flat(whole), flat(again))
    one, two = whole.posterior, again.posterior
    assert all(torch.equal(value, two.sample(1)[name]) for name, value in one.sample(1).items())
    assert 0.0 < (flat(whole) - flat(full)).norm() < 0.1 * flat(full).norm()  # autocast was on


def test_what_is_refused(tmp_path: Path) -> None:
    model, opt = trained(steps=1)
    path = tmp_path / "posterior.safetensors"
    posterior = adapter_posterior(model, opt)
    name = "base_model.model.bert.embeddings.word_embeddings.weight"
    weight = model.get_parameter(name).detach()
    more = DiagGaussian({**posterior.mean, name: weight}, {**posterior.hess, name: torch.ones_like(weight)}, ess=1.0)
    with pytest.raises(ValueError, match="word_embeddings.*is random but not saved.*modules_to_save"):
        save_adapter_posterior(more, model, path)
    save_adapter_posterior(posterior, model, path)
    other = get_peft_model(base(), LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["key"]))
    with pytest.raises(ValueError, match="'base_model.*(query|value).*', which adapter 'default' of the model has not"):
        load_adapter_posterior(path, other)
    with pytest.raises(ValueError, match="does not fit the model: wrong shape"):
        load_adapter_posterior(
            path, get_peft_model(base(), LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"]))
        )
    save(Point({"w": torch.zeros(1)}), path)
    with pytest.raises(ValueError, match="holds a Point, not the DiagGaussian of an adapter"):
        load_adapter_posterior(path, model)
    with pytest.raises(TypeError, match="a SGD learns no posterior; train with varlearn.IVON"):
        posterior_of(nn.Linear(1, 1), torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1))


def test_the_example_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    peft_lora.main()
    assert "averaged" in capsys.readouterr().out
