"""Wrong input is refused with the value, the rule and the cure, before anything is trained."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import varlearn
from tests.fitting.small_data import classes, loader, network, numbers

X, Y = classes(8)
VALUES = torch.randn(8)
FROZEN = network().requires_grad_(False)


class Returns(nn.Module):
    """Returns what it is told to."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.weight, self.value = nn.Parameter(torch.ones(1)), value

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("model", "data", "error", "words"),
    [
        (network(), iter([(X, Y)]), ValueError, "train_loader is a list_iterator, which can be read only once"),
        (network(), X, TypeError, "train_loader is a Tensor and must be an iterable of batches"),
        (network(), 3, TypeError, "train_loader is a int and must be an iterable of batches"),
        (network(), [], ValueError, "train_loader gave no batch; it must give at least one"),
        (network(), [X], ValueError, "batch 0 of train_loader has no targets; give pairs"),
        (network(), [(X, Y + 1)], ValueError, "batch 0 of train_loader: label 2 must be between 0 and 1.* renumber"),
        (network(), [(X, Y - 1)], ValueError, "batch 0 of train_loader: label -1 must be between 0 and 1"),
        (network(), [(X, Y), (X, Y + 5)], ValueError, "batch 1 of train_loader: label 6 must be between 0 and 1"),
        (network(), [(X, Y.float())], ValueError, "numbers need one output each; for classification give integer"),
        (network(3, 1), [(X, Y)], ValueError, "tell no task; for two classes return two logits"),
        (network(3, 3), [(X, VALUES)], ValueError, r"outputs of shape \(8, 3\).*targets of shape \(8,\) do not fit"),
        (network(3, 2), [(X, torch.eye(2)[Y])], ValueError, "every row of targets adds up to 1.*argmax"),
        (network(3, 1), [(X, VALUES / 0.0)], ValueError, "targets are NaN or infinite"),
        (
            Returns(torch.ones(8, 2).long()),
            [(X, Y)],
            TypeError,
            "returned torch.int64 .*must be floating-point",
        ),
        (Returns(torch.tensor(1.0)), [(X, Y)], TypeError, "one row per example; return logits or values"),
        (Returns("logits"), [(X, Y)], TypeError, "the network returned a str; it must return a tensor"),
        (Returns(torch.full((8, 2), float("nan"))), [(X, Y)], ValueError, "outputs for the first batch are NaN"),
        (FROZEN, [(X, Y)], ValueError, "no parameter with requires_grad=True"),
        (
            network(),
            TensorDataset(X, Y),
            TypeError,
            "train_loader is a TensorDataset and must be an iterable",
        ),
        (network(), [(X[0], Y[0])], ValueError, "single numbers, not batches; use a DataLoader"),
    ],
)
def test_a_wrong_network_or_loader_is_refused(model: nn.Module, data: Any, error: type[Exception], words: str) -> None:
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(error, match=words):
        varlearn.fit(model, data, 1, progress=False, samples=2)
    if "batch 1" not in words:  # found while training
        assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs=0 must be a whole number >= 1"),
        ({"task": "segmentation"}, "task='segmentation' must be one of classification, language, regression"),
        ({"task": "language"}, r"a language model needs logits \(B, T, V\) and tokens"),
        ({"method": "adam"}, "'adam' must be one of .*did you mean 'adamw'"),
        ({"method": "sgd"}, "method='sgd' has no rule for its learning rate; pass lr"),
        ({"resume": True}, "resume=True needs the folder"),
        ({"val_loader": loader(classes(8))}, "val_loader: the loader shuffles"),
        ({"val_loader": iter([])}, "val_loader: the loader is an iterator"),
    ],
)
def test_a_wrong_argument_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        varlearn.fit(network(), loader(classes(8)), **{"epochs": 1, "progress": False, **options})


def test_a_loader_that_changes_its_length_is_refused() -> None:
    class Shrinking:
        passes = 0

        def __iter__(self):
            Shrinking.passes += 1
            return iter([(X, Y)] * (3 if Shrinking.passes < 4 else 2))

    with pytest.raises(ValueError, match="gave 2 batches in pass .* and must give 3 in each"):
        varlearn.fit(network(), Shrinking(), 5, progress=False, samples=2)


def test_scores_need_targets_and_pages_need_data() -> None:
    fitted = varlearn.fit(network(), loader(classes(8)), 1, progress=False, samples=2)
    with pytest.raises(ValueError, match="the data have no targets"):
        fitted.score(X)
    with pytest.raises(ValueError, match="there are no data to show: fit had no val_loader"):
        fitted.report("page.html")


def test_a_custom_sampler_is_left_alone() -> None:
    data = TensorDataset(*numbers(200))
    weighted = DataLoader(data, batch_size=20, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 200, 200))
    with pytest.warns(UserWarning, match="no data could be held out"):
        fitted = varlearn.fit(network(1, 1), weighted, 2, progress=False, samples=2)
    assert fitted.predictor.look.n == 200
