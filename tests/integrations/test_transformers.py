"""Hugging Face's Trainer beside a plain PyTorch loop over the same batches, and beside `varlearn.prediction`."""

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    BertForQuestionAnswering,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    TrainerCallback,
    TrainingArguments,
)

from examples import hf_trainer
from tests.integrations.recording_trainer import (
    Recording,
    assert_same,
    batches,
    bert,
    examples,
    flat,
    optimizer_of,
    replay,
    trainer,
)
from varlearn.integrations.transformers import diagnostics_callback
from varlearn.metrics import nll
from varlearn.posterior import DiagGaussian, Mixture, load
from varlearn.prediction import predict, predict_tokens


def test_the_plain_trainer_needs_no_extra_line(tmp_path: Path) -> None:
    done = trainer(tmp_path)
    done.train()
    assert_same(done, replay(done))
    start = flat(bert())
    assert all((seen - start).abs().max() > 1e-3 for seen in done.seen[:1])  # a sample, not the mean
    assert optimizer_of(done).param_groups[0]["lr"] == 0.05  # not TrainingArguments' learning_rate


def test_accumulation_is_one_sample_and_the_mean_gradient(tmp_path: Path) -> None:
    done = trainer(tmp_path, gradient_accumulation_steps=2)
    done.loss_is_scaled_for_ga = False  # BERT's loss is a mean over the micro-batch, which the Trainer does not notice
    done.train()
    assert len(done.batches) == 8
    for first, second in zip(done.seen[::2], done.seen[1::2], strict=True):
        assert torch.equal(first, second)
    assert_same(done, replay(done, accumulate=2))


def test_clipping_by_the_trainer_reaches_hhat_and_is_warned_of(tmp_path: Path) -> None:
    done = trainer(tmp_path, max_grad_norm=0.1)
    with pytest.warns(
        UserWarning, match=r"max_grad_norm=0.1 scales the gradient from which IVON estimates.*max_grad_norm=0.0"
    ):
        done.train()
    assert_same(done, replay(done, clip=0.1))


def test_clipping_by_ivon(tmp_path: Path) -> None:
    done = trainer(tmp_path, settings={"max_grad_norm": 0.1})
    done.train()
    assert_same(done, replay(done, max_grad_norm=0.1))


def test_bf16(tmp_path: Path) -> None:
    done = trainer(tmp_path, bf16=True)
    done.train()
    assert_same(done, replay(done, autocast=lambda: torch.autocast("cpu", torch.bfloat16)))


def test_a_flat_prior_is_warned_of(tmp_path: Path) -> None:
    done = trainer(tmp_path, weight_decay=0.0)
    with pytest.warns(
        UserWarning, match=r"weight_decay=0.01 is 0 in every parameter group.*TrainingArguments\(weight_"
    ):
        done.train()


def test_resume_is_bitwise(tmp_path: Path) -> None:
    """Four steps, and two steps, a new process's worth of objects, and two more; dropout and schedule included."""
    options = {"save_strategy": "steps", "save_steps": 2, "lr_scheduler_type": "linear"}
    whole = trainer(tmp_path, bert(dropout=0.1), **options)
    whole.train()
    again = trainer(tmp_path, bert(dropout=0.1), **options)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert len(again.batches) == 2
    assert torch.equal(flat(whole.model), flat(again.model))
    assert torch.equal(whole.seen[2], again.seen[0])  # the noise
    assert torch.equal(whole.seen[3], again.seen[1])
    one, two = whole.posterior, again.posterior
    assert all(torch.equal(value, two.sample(3, 1)[name]) for name, value in one.sample(3, 1).items())


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float(np.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


def test_evaluation_is_averaged_beside_the_mean(tmp_path: Path) -> None:
    done = trainer(tmp_path, samples=4, compute_metrics=accuracy, settings={"ess": 30.0})
    done.train()
    before = flat(done.model)
    metrics = done.evaluate()
    assert torch.equal(before, flat(done.model))
    data = batches(examples(13))
    posterior = DiagGaussian.from_optimizer(done.model, optimizer_of(done))
    averaged = predict(done.model, posterior, data, samples=4, seed=0)
    at_mean = predict(done.model, posterior.at_mean(), data)
    assert metrics["eval_averaged_loss"] == pytest.approx(nll(averaged.log_probs, averaged.targets), rel=1e-5)
    assert metrics["eval_at_mean_loss"] == pytest.approx(nll(at_mean.log_probs, at_mean.targets), rel=1e-5)
    assert abs(metrics["eval_averaged_loss"] - metrics["eval_at_mean_loss"]) > 1e-4
    right = averaged.log_probs.argmax(-1) == averaged.targets
    assert metrics["eval_averaged_accuracy"] == pytest.approx(right.float().mean().item())
    assert "eval_accuracy" in metrics
    output = done.predict(examples(13))
    torch.testing.assert_close(torch.tensor(output.predictions), averaged.log_probs, rtol=1e-5, atol=1e-5)
    assert output.metrics["test_averaged_loss"] == pytest.approx(metrics["eval_averaged_loss"])


def test_passes_have_one_order_when_examples_are_grouped_by_length(tmp_path: Path) -> None:
    options: dict[str, Any] = {"settings": {"ess": 30.0}, "compute_metrics": accuracy}
    done = trainer(tmp_path, samples=4, train_sampling_strategy="group_by_length", **options)
    done.train()
    metrics = done.evaluate()
    posterior = DiagGaussian.from_optimizer(done.model, optimizer_of(done))
    averaged = predict(done.model, posterior, batches(examples(13)), samples=4, seed=0)
    right = averaged.log_probs.argmax(-1) == averaged.targets
    assert metrics["eval_averaged_loss"] == pytest.approx(nll(averaged.log_probs, averaged.targets), rel=1e-5)
    assert metrics["eval_averaged_accuracy"] == pytest.approx(right.float().mean().item())


def test_predict_without_labels(tmp_path: Path) -> None:
    done = trainer(tmp_path, samples=2, max_steps=1)
    done.train()
    output = done.predict([{"input_ids": row["input_ids"]} for row in examples(7)])
    assert output.label_ids is None
    assert "test_averaged_loss" not in output.metrics
    np.testing.assert_allclose(np.exp(output.predictions).sum(-1), np.ones(7), rtol=1e-5)


def test_averaged_evaluation_does_not_change_training(tmp_path: Path) -> None:
    ends = []
    for samples in (0, 3):
        done = trainer(tmp_path, bert(dropout=0.1), samples=samples, eval_strategy="steps", eval_steps=1)
        done.train()
        ends.append(flat(done.model))
    assert torch.equal(*ends)


def test_a_metric_preprocessor_sees_the_average(tmp_path: Path) -> None:
    def classes(logits: Tensor, labels: Tensor) -> Tensor:
        return logits.argmax(-1)

    def share(prediction: Any) -> dict[str, float]:
        assert prediction.predictions.shape == (13,)
        return {"right": float(np.mean(prediction.predictions == prediction.label_ids))}

    done = trainer(tmp_path, samples=2, compute_metrics=share, preprocess_logits_for_metrics=classes, max_steps=1)
    done.train()
    metrics = done.evaluate()
    assert {"eval_right", "eval_averaged_right"} <= metrics.keys()


def test_regression_averages_values(tmp_path: Path) -> None:
    data = examples(13, label=lambda index: index / 3)
    done = trainer(tmp_path, bert(labels=1), samples=3, settings={"ess": 30.0}, max_steps=1)
    done.train_dataset = data
    done.train()
    metrics = done.evaluate(data)
    posterior = done.posterior
    values = []
    for index in range(3):
        net = copy.deepcopy(done.model).eval()
        net.load_state_dict(posterior.state_dict(posterior.sample(0, index)))
        with torch.no_grad():
            values.append(torch.cat([net(input_ids=batch["input_ids"]).logits[:, 0] for batch in batches(data)]))
    labels = torch.tensor([row["labels"] for row in data])
    error = (torch.stack(values).mean(0) - labels).square().mean().item()
    assert metrics["eval_averaged_loss"] == pytest.approx(error, rel=1e-4)


def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(
        GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, **sizes)
    )


def test_language_models_average_the_probability_of_each_token(tmp_path: Path) -> None:
    data = examples(7)
    for index, row in enumerate(data):
        row["labels"] = row["input_ids"][:]
        row["labels"][1 + index % 5] = -100
    done = trainer(tmp_path, gpt2(), samples=3, settings={"ess": 30.0}, max_steps=2)
    done.train_dataset = data
    done.train()
    metrics = done.evaluate(data)
    oracle = predict_tokens(done.model, done.posterior, batches(data), samples=3, shift=True)
    assert metrics["eval_averaged_loss"] == pytest.approx(-oracle.log_probs.mean().item(), rel=1e-5)
    assert metrics["eval_averaged_loss"] != pytest.approx(metrics["eval_at_mean_loss"], rel=1e-5)


def test_accumulation_of_language_models(tmp_path: Path) -> None:
    """Micro-batches with unequal numbers of tokens are one large batch."""
    data = examples(8)
    for index, row in enumerate(data):
        row["labels"] = [*row["input_ids"][: 2 + index % 4], *[-100] * (4 - index % 4)]
    ends = []
    for micro, count in ((8, 1), (2, 4)):
        options = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": count}
        done = trainer(tmp_path, gpt2(), max_steps=2, **options)
        done.train_dataset = data
        done.train()
        ends.append(flat(done.model))
    torch.testing.assert_close(*ends, rtol=0, atol=2e-6)


def test_saving_writes_the_posterior(tmp_path: Path) -> None:
    done = trainer(tmp_path, save_strategy="steps", save_steps=2)
    done.train()
    done.save_model(str(tmp_path / "final"))
    posterior = done.posterior
    for folder in ("final", "checkpoint-4"):
        read = load(tmp_path / folder / "posterior.safetensors", bert())
        assert all(torch.equal(value, read.sample(5, 2)[name]) for name, value in posterior.sample(5, 2).items())
    earlier = load(tmp_path / "checkpoint-2" / "posterior.safetensors", bert())
    assert not torch.equal(earlier.mean["classifier.weight"], posterior.mean["classifier.weight"])
    model = BertForSequenceClassification.from_pretrained(tmp_path / "final")
    assert torch.equal(flat(model), flat(done.model))  # the model's file holds the mean


def test_a_loaded_posterior_evaluates_without_training(tmp_path: Path) -> None:
    done = trainer(tmp_path, samples=3)
    done.train()
    done.save_model(str(tmp_path / "final"))
    expected = done.evaluate()["eval_averaged_loss"]
    posterior = load(tmp_path / "final" / "posterior.safetensors")
    fresh = trainer(tmp_path, samples=3, posterior=posterior)
    assert fresh.evaluate()["eval_averaged_loss"] == pytest.approx(expected, rel=1e-6)
    mixture = trainer(tmp_path, samples=3, posterior=Mixture((posterior.at_mean(), posterior)))
    oracle = predict(bert(), mixture.posterior, batches(examples(13)), samples=3)
    assert mixture.evaluate()["eval_averaged_loss"] == pytest.approx(nll(oracle.log_probs, oracle.targets), rel=1e-5)


def test_without_ivon_the_trainer_is_itself(tmp_path: Path) -> None:
    args = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[], disable_tqdm=True)
    plain = Recording(bert(), args, eval_dataset=examples(5), posterior_samples=3)
    assert not any("averaged" in name for name in plain.evaluate())
    plain.save_model()
    assert not (tmp_path / "posterior.safetensors").exists()


def test_load_best_model_at_end_brings_its_posterior_back(tmp_path: Path) -> None:
    scores = iter([3.0, 1.0, 2.0, 0.0])
    done = trainer(
        tmp_path,
        samples=2,
        compute_metrics=lambda prediction: {"score": next(scores)},  # the mean's, then the average's
        eval_strategy="steps",
        save_strategy="steps",
        eval_steps=2,
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="averaged_score",
        greater_is_better=True,
    )
    done.train()
    assert done.state.best_global_step == 2
    best = load(tmp_path / "checkpoint-2" / "posterior.safetensors")
    assert all(torch.equal(value, done.posterior.hess[name]) for name, value in best.hess.items())
    assert all(torch.equal(value, best.mean[name]) for name, value in done.model.named_parameters())
    done.save_model(str(tmp_path / "final"))
    again = load(tmp_path / "final" / "posterior.safetensors")
    assert all(torch.equal(value, again.hess[name]) for name, value in best.hess.items())


def test_diagnostics_are_logged_beside_the_loss(tmp_path: Path) -> None:
    done = trainer(tmp_path, logging_strategy="steps", logging_steps=2)
    done.add_callback(diagnostics_callback(done))
    done.train()
    logged = [entry for entry in done.state.log_history if "ivon/0/hess_mean" in entry]
    assert [entry["step"] for entry in logged] == [2, 4]
    last = optimizer_of(done).diagnostics()
    assert logged[-1]["ivon/1/std_max"] == last[1].std_max
    assert sum("loss" in entry for entry in done.state.log_history) == 2


class Stop(TrainerCallback):
    """Fails in the middle of an accumulation."""

    def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_leaves_the_mean(tmp_path: Path) -> None:
    done = trainer(tmp_path, gradient_accumulation_steps=2, callbacks=[Stop()])
    with pytest.raises(KeyboardInterrupt):
        done.train()
    assert torch.equal(flat(done.model), flat(bert()))
    assert not torch.equal(done.seen[0], flat(bert()))


def test_what_averaged_evaluation_refuses(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="posterior_samples=-1 must be a whole number >= 0"):
        trainer(tmp_path, samples=-1)
    several = trainer(tmp_path, bert(problem_type="multi_label_classification"), samples=1)
    several._given_posterior = DiagGaussian.from_optimizer(several.model, several.create_optimizer())
    with pytest.raises(ValueError, match="several labels per example.*posterior_samples=0"):
        several.evaluate(examples(5, label=lambda index: [0.0, 1.0, float(index % 2)]))
    net = BertForQuestionAnswering(bert(labels=2).config)
    answers = trainer(tmp_path, net, samples=1)
    answers._given_posterior = DiagGaussian.from_optimizer(net, answers.create_optimizer())
    rows = [{"input_ids": row["input_ids"], "start_positions": 1, "end_positions": 2} for row in examples(5)]
    with pytest.raises(TypeError, match="without `logits`.*posterior_samples=0"):
        answers.evaluate(rows)
    wrong = trainer(tmp_path, samples=1, posterior=several.posterior.at_mean())
    wrong.model = net
    with pytest.raises(ValueError, match="does not fit the model"):
        wrong.evaluate(rows)


def test_the_example_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        hf_trainer.main()
    assert "averaged" in capsys.readouterr().out
    assert (tmp_path / "out" / "posterior.safetensors").exists()
