"""The Laplace approximation as a method: SGD, its settings, how the prior is chosen."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from varlearn import fit_laplace
from varlearn.data.examples import Examples
from varlearn.methods import Facts
from varlearn.methods.laplace import LaplaceMethod, LaplaceSettings
from varlearn.posterior import DiagGaussian, KroneckerGaussian, LowRankGaussian
from varlearn.train.build import build_parts
from varlearn.train.config import Data, Model, Run, Train
from varlearn.train.processes import Processes
from varlearn.train.training import Training

ALONE = Processes(0, 1, torch.device("cpu"))
EXAMPLES = Examples(torch.randn(20, 3), torch.tensor([0, 1] * 10), ("a", "b"), "table")
KINDS = {"full": LowRankGaussian, "kron": KroneckerGaussian, "diag": DiagGaussian}


def trained(optim: LaplaceSettings, held_out: Examples | None = None) -> Training:
    torch.manual_seed(0)
    run = Run(model=Model("mlp", 2, hidden=(4,)), data=Data(batch_size=4), optim=optim, train=Train(epochs=3))
    training = Training(build_parts(run, EXAMPLES, ALONE, held_out), ALONE)
    while training.step < training.facts.steps:
        training.gradients()
        training.update()
    return training


@pytest.mark.parametrize("structure", KINDS)
@pytest.mark.parametrize("layers", ["last", "all"])
def test_the_posterior_is_the_fit_on_all_training_data(structure: str, layers: str) -> None:
    if (structure, layers) == ("kron", "all"):
        with pytest.raises(ValueError, match=r"optim.structure='kron' is for the last layer"):
            LaplaceSettings(structure="kron", layers="all")
        return
    training = trained(LaplaceSettings(structure=structure, layers=layers))  # type: ignore[arg-type]
    found = training.posterior()
    assert type(found) is KINDS[structure]
    batches = [(EXAMPLES.inputs, EXAMPLES.targets)]
    assert isinstance(EXAMPLES.inputs, torch.Tensor)
    expected = fit_laplace(training.model, batches, layers=layers, structure=structure).posterior(10.0)  # type: ignore[arg-type]
    for name in expected.mean:
        torch.testing.assert_close(found.std[name], expected.std[name], rtol=1e-4, atol=1e-7)


def test_the_prior_by_marginal_likelihood_and_by_validation() -> None:
    training = trained(LaplaceSettings(prior="marglik", structure="diag"))
    found = training.posterior()
    best = fit_laplace(training.model, [(EXAMPLES.inputs, EXAMPLES.targets)], structure="diag").best_precision()
    assert isinstance(found, DiagGaussian)
    assert found.weight_decay["3.weight"] == pytest.approx(best / 20, rel=1e-3)
    chosen = trained(LaplaceSettings(prior="validation", structure="diag"), held_out=EXAMPLES).posterior()
    assert isinstance(chosen, DiagGaussian)
    precisions = [10 ** (k / 2.5) / 20 for k in range(-10, 11)]
    assert min(abs(chosen.weight_decay["3.weight"] / one - 1) for one in precisions) < 1e-6


def test_wrong_use_is_refused_before_training() -> None:
    with pytest.raises(
        ValueError, match=r"optim.prior='validation' needs validation data; hold some out with data.val"
    ):
        trained(LaplaceSettings(prior="validation"))
    with pytest.raises(ValueError, match=r"optim.layers='last' needs a network whose last layer is linear"):
        LaplaceMethod(LaplaceSettings()).optimizer(nn.Linear(1, 1), Facts(10, 2, 3, "regression"))
    with pytest.raises(ValueError, match=r"optim.prior_precision=0.0 must be > 0 and finite; 10 is the paper's"):
        LaplaceSettings(prior_precision=0.0)


@pytest.mark.parametrize(
    ("hidden", "layers", "words"),
    [
        (
            (2_600,),
            "last",
            r"optim.name='laplace': structure='full' has a matrix of 5,202 x 5,202 .* use structure='kron'",
        ),
        (
            (900,),
            "all",
            r"optim.name='laplace': structure='full' has a matrix of 5,402 x 5,402 .* use structure='diag'",
        ),
    ],
)
def test_a_network_that_cannot_be_fitted_is_refused_at_the_first_step(
    hidden: tuple[int, ...], layers: str, words: str
) -> None:
    run = Run(model=Model("mlp", 2, hidden=hidden), data=Data(batch_size=4), train=Train(epochs=3))
    run = replace(run, optim=LaplaceSettings(layers=layers))  # type: ignore[arg-type]
    training = Training(build_parts(run, EXAMPLES, ALONE), ALONE)
    with pytest.raises(ValueError, match=words):
        training.gradients()
    assert training.model.training
