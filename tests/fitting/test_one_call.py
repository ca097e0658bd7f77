"""`varlearn.fit` against the loop that a user would write, resumed, with every method and of every task."""

import signal
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, softplus

import varlearn
from tests.fitting.small_data import classes, loader, network, numbers
from varlearn.fitting import pass_seed
from varlearn.methods import METHODS
from varlearn.optim import warmup_cosine
from varlearn.train.run_errors import Interrupted, NonFiniteLossError

FEW = {"samples": 4, "progress": False}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_the_same_seeds_by_hand_give_the_same_bits() -> None:
    data, held_out = loader(classes()), loader(classes(20, seed=1), shuffle=False)
    fitted = varlearn.fit(network(), data, 5, held_out, **FEW)

    model = network()
    opt = varlearn.VAdamW.for_loader(model, data, epochs=5, seed=0)
    schedule = warmup_cosine(opt)
    for number in range(5):
        torch.manual_seed(pass_seed(0, number))
        for inputs, targets in data:
            with opt.sampled_params(train=True):
                opt.zero_grad()
                cross_entropy(model(inputs), targets).backward()
            opt.step()
            schedule.step()
    posterior = varlearn.DiagGaussian.from_optimizer(model, opt)
    posterior = varlearn.calibrate(model, posterior, held_out, samples=4, seed=0)

    assert same(fitted.posterior.mean, posterior.mean)
    assert same(fitted.posterior.std, posterior.std)
    assert fitted.posterior.temperature == posterior.temperature
    assert same(fitted.model.state_dict(), model.state_dict())
    x = classes(7, seed=2)[0]
    by_hand = varlearn.predict(model, posterior, [x], samples=4, seed=0)
    assert torch.equal(fitted.predict(x).log_probs, by_hand.log_probs)


class _StopError(Exception):
    pass


class _Stopping(torch.utils.data.TensorDataset):
    """Fails once, or interrupts the process once, at the given access."""

    def __init__(self, *tensors: torch.Tensor, at: int, by: str) -> None:
        super().__init__(*tensors)
        self.left, self.by = at, by

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        self.left -= 1
        if self.left == 0 and self.by == "error":  # goes on from the end of the second pass
            raise _StopError
        if self.left == 0:  # goes on in the middle of the third
            signal.raise_signal(signal.SIGINT)
        return super().__getitem__(index)


@pytest.mark.parametrize(("kind", "by"), [("classes", "error"), ("classes", "signal"), ("numbers", "signal")])
def test_a_resumed_fit_gives_the_same_bits(kind: str, by: str, tmp_path: Path) -> None:
    data = classes() if kind == "classes" else numbers(120)
    held_out = loader(classes(20, 1) if kind == "classes" else numbers(20, 1), shuffle=False)

    def net() -> nn.Module:
        inner = network(data[0].shape[1], 2 if kind == "classes" else 1)
        return nn.Sequential(*inner, nn.Dropout(0.1))  # draws from the global generator

    straight = varlearn.fit(net(), loader(data), 4, held_out, folder=tmp_path / "straight", **FEW)
    stopping = torch.utils.data.DataLoader(
        _Stopping(*data, at=2 * len(data[0]) + 40, by=by), batch_size=16, shuffle=True
    )  # in the third pass
    with pytest.raises(_StopError if by == "error" else Interrupted):
        varlearn.fit(net(), stopping, 4, held_out, folder=tmp_path / "stopped", **FEW)
    resumed = varlearn.fit(net(), stopping, 4, held_out, folder=tmp_path / "stopped", resume=True, **FEW)
    assert same(straight.posterior.mean, resumed.posterior.mean)
    assert same(straight.posterior.std, resumed.posterior.std)
    assert resumed.records == straight.records
    again = varlearn.load(tmp_path / "stopped", net())
    assert same(straight.posterior.mean, again.posterior.mean)


RATES = {"auto": None, "ivon": None, "bsam": None, "ivon-2021": 0.2, "vogn-paper": 0.2}  # others 0.05


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_every_method_of_the_table_fits(method: str) -> None:
    data = loader(classes(200))
    fitted = varlearn.fit(network(), data, 10, method=method, lr=RATES.get(method, 0.05), **FEW)
    scores = fitted.score(classes(50, seed=1))
    assert scores["accuracy"] > 0.85
    assert fitted.run.optim.name in ("vadamw" if method == "auto" else method)


def test_the_callers_random_state_is_not_touched_and_data_need_no_length() -> None:
    class Endless:
        def __iter__(self):
            return iter([classes(16), classes(16, seed=1)])

    torch.manual_seed(5)
    model = network()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    fitted = varlearn.fit(model, Endless(), 2, **FEW)
    assert torch.equal(torch.get_rng_state(), before)
    assert fitted.predictor.look.n == 32


def test_batchnorm_is_recalibrated_at_the_mean() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    data = loader(classes(64), shuffle=False)
    fitted = varlearn.fit(model, data, 3, **FEW)
    outputs = model[0](classes(64)[0])
    torch.testing.assert_close(model[1].running_mean, outputs.mean(0).detach(), rtol=1e-4, atol=1e-5)
    assert torch.equal(fitted.posterior.fixed["1.running_mean"], model[1].running_mean)


def test_a_regression_is_calibrated_in_the_units_of_its_targets() -> None:
    fitted = varlearn.fit(network(1, 1), loader(numbers(600), batch_size=32), 30, samples=16, progress=False)
    scores = fitted.score(numbers(400, seed=1))
    assert fitted.task == "regression"
    assert 18 < scores["rmse"] < 24  # the noise is 20
    assert 0.84 < scores["coverage90"] < 0.96
    assert fitted.noise is not None
    assert fitted.noise.source == "a held-out tenth of the training data"
    assert 200 < fitted.noise.variance.item() < 700
    far = fitted.predict(torch.tensor([[0.0], [30.0]]))
    assert far.epistemic[1] > 10 * far.epistemic[0]
    assert torch.equal(far.aleatoric[0], far.aleatoric[1])


class _Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = network(1, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.net(x)
        return out[:, :1], softplus(out[:, 1:]) + 1e-6


def test_a_variance_head_gives_the_noise() -> None:
    held_out = loader(numbers(100, seed=2), shuffle=False)
    fitted = varlearn.fit(_Head(), loader(numbers(600), batch_size=32), 30, held_out, samples=8, progress=False)
    found = fitted.predict(numbers(300, seed=1))
    assert 13 < found.aleatoric.mean().sqrt() < 27
    assert 0.82 < fitted.score(numbers(300, seed=1))["coverage90"] < 0.97
    assert fitted.noise is not None
    assert fitted.noise.source == "validation data"


def test_several_outputs_have_their_own_noise() -> None:
    inputs, targets = numbers(400)
    chance = torch.Generator().manual_seed(9)
    both = torch.stack([targets, 0.01 * inputs[:, 0] + 0.002 * torch.randn(400, generator=chance)], 1)
    fitted = varlearn.fit(network(1, 2), loader((inputs, both), batch_size=32), 30, samples=8, progress=False)
    assert fitted.noise is not None
    large, small = fitted.noise.variance.sqrt().tolist()
    assert 14 < large < 30
    assert 0.0013 < small < 0.003


def test_without_data_to_hold_out_the_noise_comes_from_leave_one_out_errors() -> None:
    with pytest.warns(UserWarning, match="leave-one-out errors on the training data; pass val_loader"):
        fitted = varlearn.fit(network(1, 1), loader(numbers(40)), 20, **FEW)
    assert fitted.noise is not None
    assert fitted.noise.source == "leave-one-out errors"
    assert 10 < fitted.noise.variance.sqrt().item() < 45


def test_a_language_model_counts_tokens() -> None:
    text = torch.randint(5, (12, 9), generator=torch.Generator().manual_seed(0))
    data = [(part[:, :-1], part[:, 1:]) for part in text.split(4)]
    fitted = varlearn.fit(nn.Embedding(5, 5), data, 2, data, **FEW)
    assert (fitted.task, fitted.predictor.look.n, fitted.predictor.look.batch_size) == ("language", 96, 32)
    assert fitted.score(data)["tokens"] == 96


def test_mappings_and_named_outputs_of_hugging_face() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 2)

        def forward(self, features: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.inner(features)}

    inputs, labels = classes(40)
    data = [{"features": inputs[:20], "labels": labels[:20]}, {"features": inputs[20:], "labels": labels[20:]}]
    fitted = varlearn.fit(Named(), data, 20, **FEW)
    assert fitted.score(data)["accuracy"] > 0.8
    assert fitted.predict({"features": inputs[:3]}).log_probs.shape == (3, 2)


def test_an_own_loss_is_used_and_a_loss_that_is_nan_is_named() -> None:
    seen: list[int] = []

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen.append(len(targets))
        return cross_entropy(outputs, targets) * (float("nan") if len(seen) > 6 else 1.0)  # 3 before training

    with pytest.raises(NonFiniteLossError, match="the loss is nan at step 4; start anew with a smaller lr"):
        varlearn.fit(network(), loader(classes()), 2, loss=loss, **FEW)
