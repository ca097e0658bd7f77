"""TRL's SFTTrainer with IVON, and its loss averaged over the posterior."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from examples import trl_sft
from varlearn.integrations.transformers import PosteriorTrainer
from varlearn.posterior import load
from varlearn.prediction import predict_tokens


def flat(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten().clone() for value in model.parameters()])


def build(folder: Path, steps: int = 3, **options: Any) -> Any:
    ivon = options.pop("ivon", {})
    trainer = trl_sft.build(str(folder), steps, **({"samples": 3, "save_strategy": "no"} | options))
    kind, settings = trainer.optimizer_cls_and_kwargs
    trainer.optimizer_cls_and_kwargs = kind, settings | {"seed": 7} | ivon
    return trainer


@pytest.fixture
def trainer(tmp_path: Path) -> Any:
    return build(tmp_path)


def state(trainer: Any, name: str) -> Tensor:
    return torch.cat([trainer.optimizer.state[value][name].flatten() for value in trainer.model.parameters()])


def test_sft_runs_at_samples_and_ends_at_the_mean(trainer: Any) -> None:
    start, seen = flat(trainer.model), []
    compute_loss = trainer.compute_loss

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append(flat(trainer.model))
        return compute_loss(*args, **kwargs)

    trainer.compute_loss = watched
    trainer.train()
    assert len(seen) == 3
    assert all((weights - start).abs().max() > 1e-3 for weights in seen)
    posterior = trainer.posterior
    assert all(torch.equal(value, posterior.mean[name]) for name, value in trainer.model.named_parameters())
    assert (flat(trainer.model) - start).abs().max() > 1e-5


def test_the_loss_is_averaged_over_tokens_and_samples(trainer: Any, tmp_path: Path) -> None:
    trainer.train()
    metrics = trainer.evaluate()
    batches = [dict(batch) for batch in trainer.get_eval_dataloader()]
    oracle = predict_tokens(trainer.model, trainer.posterior, batches, samples=3, shift=True)
    mean = predict_tokens(trainer.model, trainer.posterior.at_mean(), batches, shift=True)
    assert metrics["eval_averaged_loss"] == pytest.approx(-oracle.log_probs.mean().item(), rel=1e-5)
    assert metrics["eval_at_mean_loss"] == pytest.approx(-mean.log_probs.mean().item(), rel=1e-5)
    assert metrics["eval_at_mean_loss"] == pytest.approx(metrics["eval_loss"], rel=0.02)  # TRL's: a mean over batches
    assert metrics["eval_averaged_loss"] != pytest.approx(metrics["eval_at_mean_loss"], rel=1e-5)
    trainer.save_model(str(tmp_path / "final"))
    load(tmp_path / "final" / "posterior.safetensors", trainer.model)


def test_accumulation_is_the_large_batch(tmp_path: Path) -> None:
    ends = []
    for micro, count in ((8, 1), (2, 4)):
        trainer = build(tmp_path, per_device_train_batch_size=micro, gradient_accumulation_steps=count)
        trainer.train()
        ends.append(flat(trainer.model))
    torch.testing.assert_close(*ends, rtol=0, atol=1e-5)


def test_clipping_by_ivon(tmp_path: Path) -> None:
    """ghat has the norm asked for, and hhat that of the run without clipping."""
    clipped, free = (build(tmp_path, steps=1, ivon={"max_grad_norm": norm}) for norm in (0.01, None))
    clipped.train()
    free.train()
    assert state(clipped, "momentum").norm().item() == pytest.approx(0.1 * 0.01, rel=1e-3)  # 1 - beta1 is 0.1
    assert state(free, "momentum").norm() > 0.1 * 0.05
    torch.testing.assert_close(state(clipped, "hess"), state(free, "hess"))


def test_bf16(tmp_path: Path) -> None:
    half, full = (build(tmp_path, steps=1, bf16=bf16) for bf16 in (True, False))
    half.train()
    full.train()
    assert all(value.dtype == torch.float32 for value in half.model.parameters())
    error = (state(half, "momentum") - state(full, "momentum")).norm() / state(full, "momentum").norm()
    assert 1e-5 < error < 0.05  # the same sample, rounded to 8 bits on the way


def test_resume_is_bitwise(tmp_path: Path) -> None:
    options = {"steps": 4, "save_strategy": "steps", "save_steps": 2}
    whole, again = build(tmp_path, **options), build(tmp_path, **options)
    whole.train()
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert torch.equal(flat(whole.model), flat(again.model))
    one, two = whole.posterior.sample(1), again.posterior.sample(1)
    assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_the_example_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trl_sft.main()
    assert "averaged" in capsys.readouterr().out
    assert issubclass(trl_sft.AveragingSFTTrainer, PosteriorTrainer)
