"""Lightning: VAdamW in `configure_optimizers`, one callback for samples, checkpoints and averaged validation."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from varlearn import VAdamW, calibrate
from varlearn.integrations.lightning import ivon_callback
from varlearn.integrations.wrapped import posterior_of
from varlearn.optim import warmup_cosine
from varlearn.posterior import save

EPOCHS, N, BATCH = 5, 256, 32


class Classifier(LightningModule):
    """Which quadrant of the plane a point is in."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, points: Tensor) -> Tensor:
        return self.net(points)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        points, quadrants = batch
        return cross_entropy(self(points), quadrants)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        points, quadrants = batch
        self.log("val_loss", cross_entropy(self(points), quadrants))  # at the mean

    def configure_optimizers(self) -> Any:
        steps = int(self.trainer.estimated_stepping_batches)
        optimizer = VAdamW.for_model(self, n=N, batch_size=BATCH, steps=steps, max_grad_norm=1.0)
        return [optimizer], [{"scheduler": warmup_cosine(optimizer), "interval": "step"}]


def loader(seed: int) -> DataLoader[tuple[Tensor, ...]]:
    points = torch.randn(N, 2, generator=torch.Generator().manual_seed(seed))
    quadrants = 2 * (points[:, 0] > 0).long() + (points[:, 1] > 0).long()
    return DataLoader(TensorDataset(points, quadrants), batch_size=BATCH)


def main() -> None:
    torch.manual_seed(0)
    module = Classifier()
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    trainer = Trainer(max_epochs=EPOCHS, accelerator="cpu", callbacks=[ivon_callback(samples=16)], **quiet)
    trainer.fit(module, loader(0), loader(1))
    scores = trainer.callback_metrics
    print(f"NLL at the mean {scores['at_mean_nll']:.3f}, averaged {scores['averaged_nll']:.3f}")
    posterior = calibrate(module, posterior_of(module, trainer.optimizers[0]), loader(1), samples=16)
    save(posterior, "posterior.safetensors")


if __name__ == "__main__":
    main()
