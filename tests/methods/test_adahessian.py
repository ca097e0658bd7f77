"""AdaHessian as a method: its settings, its diagonal, and the command line."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call

from tests.methods.command_line import assert_later_stages_repeat, assert_repeats_after_a_kill, scores, trained
from varlearn import posterior
from varlearn.data.examples import Examples
from varlearn.methods import Facts
from varlearn.methods.adahessian import AdaHessianMethod, AdaHessianSettings
from varlearn.methods.curvature_passes import hutchinson_pass
from varlearn.optim import AdaHessian
from varlearn.posterior import Point
from varlearn.train.build import build_parts
from varlearn.train.config import Data, Model, Run, Train
from varlearn.train.processes import Processes
from varlearn.train.training import Training


def test_settings_reach_the_optimizer() -> None:
    facts = Facts(n=10, batch_size=2, steps=3, task="classification", seed=5, max_grad_norm=2.0)
    settings = AdaHessianSettings(lr=0.3, hessian_power=0.5, beta1=0.8, beta2=0.95, weight_decay=0.1)
    group = AdaHessianMethod(settings).optimizer(nn.Linear(1, 1), facts).param_groups[0]
    expected = {"lr": 0.3, "hessian_power": 0.5, "betas": (0.8, 0.95), "weight_decay": 0.1, "max_grad_norm": 2.0}
    assert {name: group[name] for name in expected} == expected


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_diagonal_is_hutchinsons_estimate_of_the_mean_loss(accumulate: int) -> None:
    """Its mean over seeds is the diagonal of the dense Hessian, also where a step has several micro-batches."""
    run = Run(
        model=Model("mlp", 2, hidden=()),
        data=Data(batch_size=4 // accumulate, augment=False),
        optim=AdaHessianSettings(),
        train=Train(epochs=1, accumulate=accumulate),
    )
    examples = Examples(torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([0, 1, 1, 0]), ("a", "b"), "table")
    alone = Processes(0, 1, torch.device("cpu"))
    found = []
    for seed in range(400):
        torch.manual_seed(0)  # of the initial weights
        training: Any = Training(build_parts(run, examples, alone), alone)
        training.facts = replace(training.facts, seed=seed)
        training.gradients()
        found.append(torch.cat([value.flatten() for value in training.optimizer._diagonals.values()]))
    params = dict(training.model.named_parameters())
    everything = next(iter(training.parts.plain))[0], torch.tensor([0, 1, 1, 0])

    def loss(*values: Any) -> Any:
        network = partial(functional_call, training.model, dict(zip(params, values, strict=True)))
        return training.loss(everything, lambda x: network((x,)))

    blocks = torch.autograd.functional.hessian(loss, tuple(params.values()))
    diagonal = torch.cat([blocks[k][k].reshape(p.numel(), -1).diagonal() for k, p in enumerate(params.values())])
    spread = torch.stack(found).std(0) / 20.0
    assert ((torch.stack(found).mean(0) - diagonal).abs() < 4.0 * spread + 1e-4).all()


def test_attention_is_differentiated_twice() -> None:
    weight = nn.Parameter(torch.randn(1, 1, 4, 8))
    optimizer = AdaHessian([weight])

    def backward(batch: Any, on_loss: Any, **_: Any) -> torch.Tensor:
        loss = nn.functional.scaled_dot_product_attention(weight, weight, weight).square().sum()
        on_loss(loss)
        loss.backward()
        return loss.detach()

    training: Any = SimpleNamespace(optimizer=optimizer, facts=SimpleNamespace(seed=0), backward=backward)
    hutchinson_pass(training, (torch.ones(1), torch.ones(1)), draw=0)
    assert optimizer._diagonals[weight].count_nonzero() == weight.numel()


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("adahessian", tmp_path_factory.mktemp("adahessian") / "run")


def test_the_command_line_trains_it(straight: Path) -> None:
    assert type(posterior.load(straight / "posterior.safetensors")) is Point
    assert scores(straight)["mean"]["accuracy"] > 0.8


def test_a_killed_run_ends_with_the_same_bits(straight: Path, tmp_path: Path) -> None:
    assert_repeats_after_a_kill("adahessian", straight, tmp_path)


def test_the_later_stages_repeat_what_train_wrote(straight: Path) -> None:
    assert_later_stages_repeat(straight)
