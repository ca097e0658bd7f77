"""A loss of the user's own: what it is given, what it may return, and what is said of a sum."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import varlearn
from tests.fitting.small_data import classes, loader, network, numbers

FEW = {"samples": 4, "progress": False}
X, Y = classes(32)


@pytest.mark.parametrize(
    ("loss", "error", "words"),
    [
        ("mse", TypeError, "loss='mse' must be a function of outputs and targets"),
        (nn.CrossEntropyLoss(reduction="none"), ValueError, r"the loss has shape \(16,\) and must be one number"),
        (lambda outputs, targets: 1.0, TypeError, "the loss returned a float and must return a tensor"),
        (lambda outputs, targets: outputs.sum().detach(), ValueError, "the loss does not depend on the weights"),
    ],
)
def test_a_loss_that_cannot_be_learned_from_is_refused(loss: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        varlearn.fit(network(), loader((X, Y)), 1, loss=loss, **FEW)


@pytest.mark.parametrize("column", [False, True])
def test_targets_have_the_shape_of_the_outputs(column: bool) -> None:
    inputs, targets = numbers(100)
    seen: list[tuple[int, ...]] = []

    def loss(outputs: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(values.shape))
        return mse_loss(outputs, values)

    data = loader((inputs, targets[:, None] if column else targets))
    varlearn.fit(network(1, 1), data, 1, loss=loss, **FEW)
    assert {shape[1:] for shape in seen} == {(1,)}


@pytest.mark.parametrize(("reduction", "codes"), [("mean", []), ("sum", ["summed_loss"])])
def test_a_summed_loss_is_found_of_every_task(reduction: str, codes: list[str]) -> None:
    class CrossEntropy(nn.CrossEntropyLoss):
        pass

    fitted = varlearn.fit(network(), loader((X, Y)), 20, loss=CrossEntropy(reduction=reduction), **FEW)
    assert [finding.code for finding in fitted.advice if finding.severity == "error"] == codes
    inputs, targets = numbers(100)
    data = loader((inputs, (targets - 1000.0) / 50.0))
    fitted = varlearn.fit(network(1, 1), data, 20, loss=nn.MSELoss(reduction=reduction), **FEW)
    assert [finding.code for finding in fitted.advice if finding.severity == "error"] == codes


def test_the_loss_of_the_task_is_never_taken_for_a_sum() -> None:
    far = [(1e4 * X, Y)]
    fitted = varlearn.fit(network(), far, 5, loss=None, **FEW)
    assert "summed_loss" not in [finding.code for finding in fitted.advice]
    same = varlearn.fit(network(), loader((X, Y)), 2, loss=cross_entropy, **FEW)
    default = varlearn.fit(network(), loader((X, Y)), 2, **FEW)
    assert torch.equal(same.predict(X).log_probs, default.predict(X).log_probs)


@pytest.mark.parametrize("method", ["auto", "ivon"])
def test_a_regression_that_diverges_is_told_so(method: str) -> None:
    data = loader(numbers(300), batch_size=32)
    sick = varlearn.fit(network(1, 1), data, 10, method=method, lr=50.0, **FEW)
    assert [finding.code for finding in sick.advice] == ["diverged"]
    assert "always predicting the mean of the targets gives" in sick.advice[0].sentence
    assert [finding.code for finding in varlearn.fit(network(1, 1), data, 10, **FEW).advice] == []
