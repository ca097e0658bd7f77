"""VOGN as a method: its settings, its squares compared with a loop, and the command line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.methods.command_line import assert_later_stages_repeat, assert_repeats_after_a_kill, scores, trained
from varlearn import posterior
from varlearn.data.examples import Examples
from varlearn.methods import Facts
from varlearn.methods.curvature_passes import drawn_labels
from varlearn.methods.vogn import VOGNMethod, VOGNSettings
from varlearn.posterior import DiagGaussian
from varlearn.train.build import build_parts
from varlearn.train.config import Data, Model, Run, Train
from varlearn.train.processes import Processes
from varlearn.train.training import Training

FACTS = Facts(n=10, batch_size=2, steps=3, task="classification", seed=5, max_grad_norm=2.0)
ALONE = Processes(0, 1, torch.device("cpu"))


def training_of(settings: VOGNSettings, accumulate: int = 1) -> Training:
    torch.manual_seed(0)  # of the initial weights
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(8, 3, generator=generator), torch.arange(8) % 2
    run = Run(
        model=Model("mlp", 2, hidden=(4,)),
        data=Data(batch_size=4, augment=False),
        optim=settings,
        train=Train(epochs=2, accumulate=accumulate),
    )
    return Training(build_parts(run, Examples(inputs, targets, ("a", "b"), "table"), ALONE), ALONE)


def test_settings_reach_the_optimizer() -> None:
    settings = VOGNSettings(lr=0.3, damping=0.2, beta1=0.8, beta2=0.95, ess=7.0, samples=3, clip_radius=0.5)
    group = VOGNMethod(settings).optimizer(nn.Linear(1, 1), FACTS).param_groups[0]
    expected = {"lr": 0.3, "damping": 0.2, "ess": 7.0, "mc_samples": 3, "clip_radius": 0.5, "seed": 5}
    assert {name: group[name] for name in expected} == expected
    assert (group["betas"], group["max_grad_norm"], group["momentum"]) == ((0.8, 0.95), 2.0, "sum")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradients_and_squares_are_those_of_a_loop_over_the_examples(accumulate: int) -> None:
    training = training_of(VOGNSettings(), accumulate)
    taken: list[tuple[Any, list[Tensor]]] = []

    def gradients(run: Training, batch: Any, draw: int, more: bool) -> Tensor:
        taken.append((batch, [param.detach().clone() for param in run.model.parameters()]))
        return VOGNMethod.sample_pass(method, run, batch, draw, more)  # type: ignore[arg-type]

    method: Any = training.method
    method.sample_pass = gradients
    loss = training.gradients()
    params = list(training.model.parameters())
    grads, squares = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]
    losses = []
    for (inputs, targets), weights in taken:
        means = [param.detach().clone() for param in params]
        with torch.no_grad():
            for param, weight in zip(params, weights, strict=True):
                param.copy_(weight)
        for k in range(len(targets)):
            one = training.loss((inputs[k : k + 1], targets[k : k + 1]))
            losses.append(one.item())
            for grad, square, found in zip(grads, squares, torch.autograd.grad(one, params), strict=True):
                grad += found / (4 * accumulate)
                square += found.square() / (4 * accumulate)
        with torch.no_grad():
            for param, mean in zip(params, means, strict=True):
                param.copy_(mean)
    assert len(taken) == accumulate
    assert loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    estimates = training.optimizer._average.estimates  # type: ignore[attr-defined]
    for param, grad, square in zip(params, grads, squares, strict=True):
        torch.testing.assert_close(param.grad, grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(estimates[param], square, rtol=1e-4, atol=1e-7)


def test_sampled_labels_change_the_squares_and_not_the_gradient() -> None:
    both = [training_of(VOGNSettings(labels=labels)) for labels in ("true", "sampled")]
    for training in both:
        training.gradients()
    grads = [[param.grad for param in training.model.parameters()] for training in both]
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-6)
    squares = [list(training.optimizer._average.estimates.values()) for training in both]  # type: ignore[attr-defined]
    assert not all(torch.equal(one, other) for one, other in zip(*squares, strict=True))


def test_labels_are_drawn_from_the_model_by_the_number_of_the_pass() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]]).expand(20_000, 3)
    run: Any = SimpleNamespace(facts=FACTS, forward=lambda inputs: logits)
    batch: Any = torch.zeros(20_000, 1), torch.zeros(20_000, dtype=torch.long)
    drawn = drawn_labels(run, batch, draw=3)
    shares = torch.bincount(drawn) / 20_000
    torch.testing.assert_close(shares, logits[0].softmax(0), rtol=0.0, atol=0.015)
    assert torch.equal(drawn, drawn_labels(run, batch, draw=3))
    assert not torch.equal(drawn, drawn_labels(run, batch, draw=4))


def test_numbers_are_drawn_from_the_predicted_gaussian_and_unscored_tokens_stay() -> None:
    facts = Facts(n=1, batch_size=1, steps=1, task="regression")
    outputs = torch.full((20_000, 1), 3.0), torch.full((20_000, 1), 4.0)
    run: Any = SimpleNamespace(facts=facts, forward=lambda inputs: outputs)
    drawn = drawn_labels(run, (torch.zeros(1), torch.zeros(20_000)), 0)
    assert drawn.mean().item() == pytest.approx(3.0, abs=0.06)
    assert drawn.var().item() == pytest.approx(4.0, rel=0.05)
    facts = Facts(n=1, batch_size=1, steps=1, task="language")
    run = SimpleNamespace(facts=facts, forward=lambda inputs: torch.zeros(2, 3, 5))
    targets = torch.tensor([[1, -100, 2], [-100, 0, 0]])
    assert torch.equal(drawn_labels(run, (torch.zeros(1), targets), 0) == -100, targets == -100)


def test_a_network_that_mixes_examples_is_refused_before_training() -> None:
    with pytest.raises(ValueError, match="BatchNorm1d .1. mixes the examples of a batch"):
        VOGNMethod(VOGNSettings()).prepare(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("vogn", tmp_path_factory.mktemp("vogn") / "run", "--optim.labels", "sampled")


def test_the_command_line_trains_it(straight: Path) -> None:
    found = posterior.load(straight / "posterior.safetensors")
    assert isinstance(found, DiagGaussian)
    assert found.origin.method == "vogn"
    metrics = scores(straight)
    assert min(metrics["mean"]["accuracy"], metrics["averaged"]["accuracy"]) > 0.8
    assert metrics["mean"] != metrics["averaged"]


def test_a_killed_run_ends_with_the_same_bits(straight: Path, tmp_path: Path) -> None:
    assert_repeats_after_a_kill("vogn", straight, tmp_path, "--optim.labels", "sampled")


def test_the_later_stages_repeat_what_train_wrote(straight: Path) -> None:
    assert_later_stages_repeat(straight)
