"""IVON as a method: its settings, its blocks, its posterior."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.methods.quadratic import FACTS, Quadratic, assert_learns_a_gaussian
from varlearn import IVON
from varlearn.data.examples import Examples
from varlearn.methods import Optim
from varlearn.methods.ivon import IVONMethod, IVONSettings
from varlearn.train.build import build_parts
from varlearn.train.config import Data, Model, Run, Train
from varlearn.train.processes import Processes
from varlearn.train.training import Training

SETTINGS = {"lr": 0.3, "ess": 7.0, "hess_init": 0.2, "clip_radius": 0.5, "rescale_lr": False}


def test_settings_and_facts_reach_the_optimizer() -> None:
    method = IVONMethod(Optim("ivon", beta1=0.8, beta2=0.95, samples=3, **SETTINGS))  # type: ignore[arg-type]
    optimizer = method.optimizer(nn.Linear(1, 1), FACTS)
    assert isinstance(optimizer, IVON)
    expected = SETTINGS | {"seed": 5, "max_grad_norm": 2.0, "mc_samples": 3}
    group = optimizer.param_groups[0]
    assert {name: group[name] for name in expected} == expected
    assert tuple(group["betas"]) == (0.8, 0.95)


def test_ess_is_the_number_of_examples_unless_given() -> None:
    assert IVONMethod(Optim("ivon")).optimizer(nn.Linear(1, 1), FACTS).param_groups[0]["ess"] == 10.0


def test_each_sample_has_its_own_block_and_the_last_one_is_averaged_over_processes() -> None:
    training = Quadratic(method := IVONMethod(Optim("ivon", samples=3)))
    mean = training.model.weight.item()
    losses = method.gradients(training, torch.ones(1))  # type: ignore[arg-type]
    weights, shares, more = zip(*training.calls, strict=True)
    assert len({*weights, mean}) == 4
    assert (shares, more) == ((1.0,) * 3, (True, True, False))
    assert [loss.item() for loss in losses] == [0.5 * (torch.tensor(w) - 1.0).square().item() for w in weights]
    assert training.model.weight.item() == mean
    torch.testing.assert_close(training.model.weight.grad, torch.tensor([[sum(weights) / 3 - 1.0]]))


def test_the_posterior_and_the_diagnostics_are_the_optimizer_s() -> None:
    assert_learns_a_gaussian(IVONMethod(Optim("ivon")))


@pytest.mark.parametrize(
    ("given", "meant"), [("price", "reparam"), ("gradsq", "squared_gradient"), ("gaussnewton", "gauss_newton")]
)
def test_estimators_have_the_names_of_other_implementations_too(given: Any, meant: str) -> None:
    assert IVONSettings(hess_approx=given) == IVONSettings(hess_approx=meant)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="optim.hess_approx='gausnewton' must be one of .*; did you mean 'gaussnewton'"
    ):
        IVONSettings(hess_approx="gausnewton")  # type: ignore[arg-type]


def one_step(estimator: Any) -> tuple[Training, dict[str, Tensor]]:
    """A run after the gradients of its first step, and hhat by name of the parameter where it was handed in."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    run = Run(
        model=Model("mlp", 2, hidden=(4,)),
        data=Data(batch_size=4, augment=False),
        optim=IVONSettings(hess_approx=estimator, ess=1e12),
        train=Train(epochs=1),
    )
    alone = Processes(0, 1, torch.device("cpu"))
    training = Training(build_parts(run, Examples(inputs, targets, ("a", "b"), "table"), alone), alone)
    training.gradients()
    estimates = training.optimizer._average.estimates  # type: ignore[attr-defined]
    return training, {name: estimates[p] for name, p in training.model.named_parameters() if p in estimates}


def test_each_estimator_gives_its_own_hhat_and_the_same_gradient() -> None:
    """With lambda = 10^12 the sample is the mean, so that gradients can be compared."""
    runs = {name: one_step(name) for name in ("reparam", "squared_gradient", "gauss_newton", "hutchinson")}
    grads = [torch.cat([p.grad.flatten() for p in run.model.parameters()]) for run, _ in runs.values()]  # type: ignore[union-attr]
    for grad in grads[1:]:
        torch.testing.assert_close(grad, grads[0], rtol=1e-3, atol=1e-5)
    assert runs["reparam"][1] == runs["squared_gradient"][1] == {}  # made from the gradient at the step
    group = runs["squared_gradient"][0].optimizer.param_groups[0]
    assert (group["hess_approx"], group["noise"]) == ("squared_gradient", "independent")
    training, squares = runs["gauss_newton"]
    inputs, targets = training.parts.plain.examples.inputs, training.parts.plain.examples.targets  # type: ignore[attr-defined]
    params = list(training.model.parameters())
    single = [torch.autograd.grad(training.loss((inputs[k : k + 1], targets[k : k + 1])), params) for k in range(4)]
    for place, found in enumerate(squares.values()):
        expected = torch.stack([each[place] for each in single]).square().mean(0)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-7)
    assert runs["hutchinson"][1].keys() == squares.keys()
    assert any(bool((found < 0).any()) for found in runs["hutchinson"][1].values())


def test_a_network_without_gradients_of_examples_has_no_gauss_newton_estimate() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert IVONMethod(IVONSettings()).prepare(net) is net
    with pytest.raises(ValueError, match="mixes the examples"):
        IVONMethod(IVONSettings(hess_approx="gauss_newton")).prepare(net)
