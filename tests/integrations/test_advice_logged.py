"""Frameworks log advice at the end of training."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from tests.integrations.recording_trainer import trainer
from varlearn import IVON
from varlearn.advice import findings
from varlearn.integrations.lightning import ivon_callback
from varlearn.integrations.transformers import diagnostics_callback
from varlearn.integrations.wrapped import trainer_facts


class Net(LightningModule):
    """With BatchNorm, whose statistics nobody recalibrates."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> IVON:
        return IVON(self.parameters(), lr=0.1, ess=200.0, hess_init=0.1, betas=(0.9, 0.95))


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*")
def test_lightning_names_batchnorm_layers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = TensorDataset(torch.randn(24, 4), torch.randint(3, (24,)))
    run = Trainer(
        default_root_dir=tmp_path,
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ivon_callback()],
    )
    with caplog.at_level(logging.WARNING, "varlearn"):
        run.fit(Net(), DataLoader(data, batch_size=8))
    logged = [record.getMessage() for record in caplog.records if record.name == "varlearn"]
    assert len(logged) == 1
    assert logged[0].startswith("warning: 1 BatchNorm layer(s) still have")


def test_the_trainer_s_callback_names_a_collapsed_h(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = trainer(tmp_path, settings={"hess_init": 1e-9, "ess": 1e12})
    run.add_callback(diagnostics_callback(run))
    with caplog.at_level(logging.WARNING, "varlearn"):
        run.train()
    assert any("h is " in record.getMessage() for record in caplog.records if record.name == "varlearn")


def test_the_trainer_s_log_tells_of_a_loss_that_rose() -> None:
    log = [{"loss": 1.0, "learning_rate": 5.0}, {"eval_loss": 1.0}, {"loss": 9.0, "learning_rate": 5.0}]
    facts = trainer_facts(SimpleNamespace(log_history=log, global_step=200, max_steps=200))
    assert {finding.code for finding in findings(facts)} == {"diverged", "no_schedule"}
    assert findings(trainer_facts(SimpleNamespace(log_history=[], global_step=0, max_steps=200))) == ()
