"""Trainer's and Lightning's logs have the leave-one-out loss that `sensitivity` gives, and stop by it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch import Trainer as Lightning
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from transformers import Trainer, TrainingArguments

import varlearn
from varlearn.integrations.leave_one_out import LOOLogger, lightning_loo_callback, trainer_loo_callback
from varlearn.posterior import DiagGaussian
from varlearn.sensitivities.example_count import with_ess

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
]
N = 24


class Net(nn.Module):
    """Returns logits, and the loss where labels are given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 3))

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.layers(x)
        return {"logits": logits} if labels is None else {"loss": cross_entropy(logits, labels), "logits": logits}


def examples() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(N, 4, generator=generator), torch.randint(3, (N,), generator=generator)
    return [{"x": a, "labels": b} for a, b in zip(x, y, strict=True)]


def optimizer_of(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    if kind == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    return varlearn.IVON(model.parameters(), lr=0.1, ess=500.0, hess_init=0.1, weight_decay=1e-2)


@pytest.mark.parametrize("kind", ["ivon", "adamw"])
def test_trainer_logs_the_leave_one_out_loss_of_each_epoch(kind: str, tmp_path: Path) -> None:
    model, data = Net(), examples()
    loader: Any = DataLoader(data, batch_size=10)  # type: ignore[arg-type]
    arguments = TrainingArguments(
        str(tmp_path), num_train_epochs=2, per_device_train_batch_size=8, report_to=[], disable_tqdm=True, use_cpu=True
    )
    optimizer = optimizer_of(kind, model)
    trainer = Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, None))  # type: ignore[arg-type]
    logger = LOOLogger(loader, n=N)
    trainer.add_callback(trainer_loo_callback(trainer, logger))
    trainer.train()
    logged = [record["loo_loss"] for record in trainer.state.log_history if "loo_loss" in record]
    assert len(logged) == 2
    ess = {} if kind == "ivon" else {"ess": float(N)}
    q = with_ess(DiagGaussian.from_optimizer(model, optimizer, **ess), N)
    expected = varlearn.sensitivity(model.eval(), q, loader).loo_loss.double().mean().item()
    assert logged[-1] == pytest.approx(expected, rel=1e-5)
    assert logger.tracker.counts.tolist() == [2] * N


class Module(LightningModule):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.net, self.kind = Net(), kind

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)["logits"]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return optimizer_of(self.kind, self)


@pytest.mark.parametrize("kind", ["ivon", "adamw"])
def test_lightning_logs_it_and_stops_when_it_no_longer_falls(kind: str, tmp_path: Path) -> None:
    data = examples()
    dataset = TensorDataset(torch.stack([one["x"] for one in data]), torch.stack([one["labels"] for one in data]))
    module, loader = Module(kind), DataLoader(dataset, batch_size=8)
    logger = LOOLogger(loader, n=N, patience=1)
    logger.best = 0.0  # no loss is lower, so it stops after the first epoch
    trainer = Lightning(
        max_epochs=5,
        callbacks=[lightning_loo_callback(logger)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=tmp_path,
    )
    trainer.fit(module, loader)
    assert trainer.current_epoch == 1
    ess = {} if kind == "ivon" else {"ess": float(N)}
    q = with_ess(DiagGaussian.from_optimizer(module, trainer.optimizers[0], **ess), N)
    expected = varlearn.sensitivity(module.eval(), q, loader).loo_loss.double().mean().item()
    assert float(trainer.callback_metrics["loo_loss"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("settings", "name"), [({"n": 0}, "n=0"), ({"n": 5, "patience": 0}, "patience=0")])
def test_wrong_settings_are_refused(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        LOOLogger([], **settings)
