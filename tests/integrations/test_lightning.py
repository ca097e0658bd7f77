"""Lightning beside a plain PyTorch loop over the same batches."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from examples import lightning_module
from varlearn import IVON
from varlearn.integrations.lightning import ivon_callback
from varlearn.metrics import accuracy, nll
from varlearn.posterior import DiagGaussian
from varlearn.prediction import predict

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory .* exists and is not empty.*"),
    pytest.mark.filterwarnings("ignore:.*resuming from a checkpoint that ended before the epoch ended.*"),
]

SETTINGS: dict[str, Any] = {"lr": 0.1, "ess": 200.0, "hess_init": 0.1, "betas": (0.9, 0.95), "seed": 7}


class Net(LightningModule):
    """Keeps what it was trained with: weights and inputs of each forward pass."""

    def __init__(self, dropout: float = 0.0, **settings: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))
        self.settings = SETTINGS | settings
        self.seen: list[Tensor] = []
        self.validated: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.seen.append(flat(self))
        return cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.validated.append(flat(self))

    def configure_optimizers(self) -> IVON:
        return IVON(self.parameters(), **self.settings)


class Manual(Net):
    """Takes its steps by itself."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        opt = self.optimizers()
        assert not isinstance(opt, list)
        opt.zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        opt.step()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten().clone() for value in model.parameters()])


def data(count: int = 16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(count, 4, generator=generator), torch.randint(3, (count,), generator=generator)


def loader(size: int = 4) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*data()), batch_size=size)


def fit(
    module: LightningModule, folder: Path, *, samples: int = 0, ckpt_path: str | None = None, **options: Any
) -> Trainer:
    callbacks = [ivon_callback(samples), *options.pop("callbacks", [])]
    defaults: dict[str, Any] = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
    }
    run = Trainer(default_root_dir=folder, callbacks=callbacks, **(defaults | options))
    run.fit(module, loader(), loader(8), ckpt_path=ckpt_path)
    return run


def replay(
    *,
    accumulate: int = 1,
    clip: float | None = None,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    samples: int = 1,
    **settings: Any,
) -> tuple[nn.Module, IVON]:
    model = Net()
    opt = IVON(model.parameters(), **(SETTINGS | settings))
    batches = list(loader()) * 2
    for start in range(0, len(batches), accumulate):
        opt.zero_grad()
        for _ in range(samples):
            with opt.sampled_params(train=True):
                for inputs, targets in batches[start : start + accumulate]:
                    with autocast():
                        loss = cross_entropy(model(inputs), targets) / accumulate
                    loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
    return model, opt


def assert_same(module: Net, run: Trainer, plain: tuple[nn.Module, IVON], atol: float = 1e-6) -> None:
    model, opt = plain
    torch.testing.assert_close(flat(module), flat(model), rtol=0, atol=atol)
    theirs = run.optimizers[0].state
    for a, b in zip(model.parameters(), module.parameters(), strict=True):
        assert opt.state[a]["step"] == theirs[b]["step"]
        torch.testing.assert_close(opt.state[a]["hess"], theirs[b]["hess"], rtol=1e-4, atol=10 * atol)


def test_automatic_optimization(tmp_path: Path) -> None:
    module = Net()
    assert_same(module, fit(module, tmp_path), replay())
    assert torch.equal(module.validated[-1], flat(module))  # validation is at the mean


def test_several_samples_per_step(tmp_path: Path) -> None:
    module = Net(mc_samples=3)
    run = fit(module, tmp_path)
    assert len(module.seen) == 24
    assert_same(module, run, replay(samples=3))


@pytest.mark.parametrize("manual", [False, True], ids=["automatic", "manual"])
def test_manual_and_automatic_take_the_same_steps(tmp_path: Path, manual: bool) -> None:
    module = Manual() if manual else Net()
    assert_same(module, fit(module, tmp_path), replay())


def test_accumulation_is_one_sample_and_the_mean_gradient(tmp_path: Path) -> None:
    module = Net()
    run = fit(module, tmp_path, accumulate_grad_batches=2)
    for first, second in zip(module.seen[::2], module.seen[1::2], strict=True):
        assert torch.equal(first, second)
    assert not torch.equal(module.seen[0], flat(Net()))
    assert_same(module, run, replay(accumulate=2))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_clipping_reaches_hhat_and_is_warned_of(tmp_path: Path, accumulate: int) -> None:
    module = Net()
    with pytest.warns(UserWarning, match=r"gradient_clip_val=0.1 scales the gradient from which IVON estimates"):
        run = fit(module, tmp_path, gradient_clip_val=0.1, accumulate_grad_batches=accumulate)
    assert_same(module, run, replay(accumulate=accumulate, clip=0.1))


def test_clipping_by_ivon(tmp_path: Path) -> None:
    module = Net(max_grad_norm=0.1)
    assert_same(module, fit(module, tmp_path), replay(max_grad_norm=0.1))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_bf16_mixed(tmp_path: Path, accumulate: int) -> None:
    module = Net()
    run = fit(module, tmp_path, precision="bf16-mixed", accumulate_grad_batches=accumulate)
    assert all(value.dtype == torch.float32 for value in module.parameters())
    plain = replay(accumulate=accumulate, autocast=lambda: torch.autocast("cpu", torch.bfloat16))
    assert_same(module, run, plain, atol=1e-5)


def test_gradient_scaler(tmp_path: Path) -> None:
    """With a scaler Lightning runs the closure before `step()`; on a CPU autocast computes in float32 here."""
    module = Net()
    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=256.0))
    plugin.autocast_context_manager = lambda: torch.autocast("cpu", enabled=False)  # type: ignore[method-assign]
    run = fit(module, tmp_path, plugins=[plugin])
    assert_same(module, run, replay())


class AtEveryBatch(Callback):
    """Looks at the weights where checkpoints are made."""

    def __init__(self) -> None:
        self.ends: list[Tensor] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        self.ends.append(flat(pl_module))


def test_checkpoints_hold_the_mean_also_in_the_middle_of_an_accumulation(tmp_path: Path) -> None:
    watch = AtEveryBatch()
    saver = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    module = Net()
    fit(module, tmp_path, accumulate_grad_batches=2, callbacks=[watch, saver])
    assert torch.equal(watch.ends[0], flat(Net()))  # one micro-batch done, no step taken
    assert torch.equal(watch.ends[1], watch.ends[2])
    for step in (1, 4):
        state = torch.load(tmp_path / f"step={step}.ckpt", weights_only=True)["state_dict"]
        saved = torch.cat([value.flatten() for value in state.values()])
        assert torch.equal(saved, watch.ends[2 * step - 1])


def test_resume_is_bitwise(tmp_path: Path) -> None:
    """Two epochs, and one, new objects, and one more; with dropout, whose seed Lightning does not keep."""

    class Seeded(Callback):
        def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
            torch.manual_seed(trainer.global_step)

    def callbacks() -> list[Callback]:
        return [Seeded(), ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)]

    whole, again = Net(dropout=0.2), Net(dropout=0.2)
    one = fit(whole, tmp_path, callbacks=callbacks())
    two = fit(again, tmp_path, callbacks=callbacks(), ckpt_path=str(tmp_path / "epoch=0.ckpt"))
    assert len(again.seen) == 4
    assert torch.equal(whole.seen[4], again.seen[0])  # the noise
    assert torch.equal(flat(whole), flat(again))
    first = DiagGaussian.from_optimizer(whole, one.optimizers[0])
    second = DiagGaussian.from_optimizer(again, two.optimizers[0])
    assert all(torch.equal(value, second.sample(1)[name]) for name, value in first.sample(1).items())


def test_validation_is_averaged_beside_the_mean(tmp_path: Path) -> None:
    module = Net(ess=20.0)
    run = fit(module, tmp_path, samples=4)
    posterior = DiagGaussian.from_optimizer(module, run.optimizers[0])
    averaged = predict(module, posterior, loader(8), samples=4, seed=0)
    at_mean = predict(module, posterior.at_mean(), loader(8))
    logged = {name: float(value) for name, value in run.callback_metrics.items()}
    assert logged["averaged_nll"] == pytest.approx(nll(averaged.log_probs, averaged.targets), rel=1e-5)
    assert logged["at_mean_nll"] == pytest.approx(nll(at_mean.log_probs, at_mean.targets), rel=1e-5)
    assert logged["averaged_accuracy"] == pytest.approx(accuracy(averaged.log_probs, averaged.targets))
    assert logged["averaged_nll"] != pytest.approx(logged["at_mean_nll"], rel=1e-4)
    plain = Net(ess=20.0)
    fit(plain, tmp_path, samples=0)
    assert torch.equal(flat(plain), flat(module))  # training does not notice


def test_diagnostics_are_logged(tmp_path: Path) -> None:
    module = Net()
    run = fit(module, tmp_path)
    optimizer = run.optimizers[0]
    assert isinstance(optimizer, IVON)
    assert float(run.callback_metrics["ivon/0/std_mean"]) == pytest.approx(optimizer.diagnostics()[0].std_mean)


def test_an_exception_leaves_the_mean(tmp_path: Path) -> None:
    class Stops(Net):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            super().training_step(batch, batch_idx)
            raise ZeroDivisionError

    for accumulate in (1, 2):
        module = Stops()
        with pytest.raises(ZeroDivisionError):
            fit(module, tmp_path, accumulate_grad_batches=accumulate)
        assert torch.equal(flat(module), flat(Net()))
        assert not torch.equal(module.seen[0], flat(Net()))


def test_the_number_of_samples_is_checked() -> None:
    with pytest.raises(ValueError, match="samples=-1 must be a whole number >= 0"):
        ivon_callback(samples=-1)


def test_the_example_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lightning_module.main()
    assert "averaged" in capsys.readouterr().out
