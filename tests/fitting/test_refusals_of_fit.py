"""Wrong input is refused with the value, the rule and the cure, before anything is trained."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import varlearn
from tests.fitting.small_data import classes, loader, network, numbers
from varlearn.train.run_errors import NonFiniteLossError

X, Y = classes(8)
VALUES = torch.randn(8)
HOLES = torch.full_like(X, float("nan"))
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
        (
            Returns(torch.full((8, 2), float("nan"))),
            [(X, Y)],
            ValueError,
            "outputs for the first batch of train_loader are NaN",
        ),
        (FROZEN, [(X, Y)], ValueError, "no parameter with requires_grad=True"),
        (network(), [(HOLES, Y)], ValueError, "the inputs of the first batch of train_loader are NaN or infinite"),
        (nn.Sequential(network(), nn.Softmax(1)), [(X, Y)], ValueError, "are probabilities.* leave the softmax .* out"),
        (network(), [(X, Y.numpy().astype(str))], TypeError, "targets of batch 0 of train_loader .*numpy.unique"),
        (network(), [(X, ["yes"] * 8)], TypeError, "targets of batch 0 of train_loader are no numbers.*numpy.unique"),
        (
            network(3, 1),
            [(X.repeat(20, 1), torch.arange(160.0).log()[:, None])],
            ValueError,
            "batch 0 of .*train_loader.*: targets are NaN or infinite",
        ),
        (
            network(),
            TensorDataset(X, Y),
            TypeError,
            "train_loader is a TensorDataset and must be an iterable",
        ),
        (network(), (X, Y), ValueError, r"train_loader is one pair \(inputs, targets\), and batches"),
        (network(), X.numpy(), TypeError, "train_loader is a ndarray and must be an iterable of batches"),
        (network(), {"features": X}, TypeError, "train_loader is a dict and must be an iterable of batches"),
        (
            network(),
            [(X.double(), Y)],
            ValueError,
            r"the network fails on the first batch .* float64 \(8, 3\).* float32",
        ),
        (network(4), [(X, Y)], ValueError, r"fails on the first batch of train_loader: .*shapes.* float32 \(8, 3\)"),
        (network(), [(X, Y[:, None])], ValueError, r"give labels of shape \(B,\), targets.squeeze\(1\)"),
        (network(), [(X, torch.eye(2)[Y].long())], ValueError, r"give labels, targets.argmax\(1\)"),
        (network(3, 1), [(X, Y.float())], ValueError, "all targets are 0 or 1; for two classes return two logits"),
        (network(), [(X[:, 0].numpy().astype(str), Y)], TypeError, "a ndarray with values of type <U.* give numbers"),
        (nn.LazyLinear(2), [(X, Y)], ValueError, r"lazy layers without weights; call model\(inputs\)"),
        (nn.Linear, [(X, Y)], TypeError, "model is a type and must be a torch.nn.Module"),
        (network(), [(X[0], Y[0])], ValueError, "single numbers, not batches; use a DataLoader"),
    ],
)
def test_a_wrong_network_or_loader_is_refused(model: nn.Module, data: Any, error: type[Exception], words: str) -> None:
    known = isinstance(model, nn.Module) and not isinstance(model, nn.LazyLinear)
    weights = {name: value.clone() for name, value in model.state_dict().items()} if known else {}
    with pytest.raises(error, match=words):
        varlearn.fit(model, data, 1, progress=False, samples=2)
    if known and "batch 1" not in words:  # found while training
        assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs=0 must be a whole number >= 1"),
        ({"epochs": True}, "epochs=True must be a whole number >= 1"),
        ({"samples": 0}, "samples=0 must be a whole number >= 1"),
        ({"seed": -1}, "seed=-1 must be a whole number >= 0"),
        ({"lr": 0.0}, "lr=0.0 must be a number > 0; leave it out"),
        ({"lr": float("nan")}, "lr=nan must be a number > 0"),
        ({"method": "VAdamW"}, "'VAdamW' must be one of .*did you mean 'vadamw'"),
        ({"val_loader": (X, Y)}, r"val_loader is one pair \(inputs, targets\)"),
        ({"val_loader": [(X, Y), (HOLES, Y)]}, "the inputs of batch 1 of val_loader are NaN or infinite; leave"),
        ({"task": "segmentation"}, "task='segmentation' must be one of classification, language, regression"),
        ({"task": "language"}, r"a language model needs logits \(B, T, V\) and tokens"),
        ({"method": "adam"}, "^method='adam' must be one of .*did you mean 'adamw'"),
        ({"method": "sgd"}, "method='sgd' has no rule for its learning rate; pass lr"),
        ({"resume": True}, "resume=True needs the folder"),
        ({"val_loader": loader(classes(8))}, "val_loader: the loader shuffles"),
        ({"val_loader": iter([])}, "val_loader is a list_iterator, which can be read only once"),
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


def test_an_iterable_for_one_pass_is_refused() -> None:
    class Once:
        def __init__(self) -> None:
            self.batches = iter([(X, Y)] * 3)

        def __iter__(self):
            return self.batches

    with pytest.raises(ValueError, match="gave batches in the first pass and none in the second.*pass a list"):
        varlearn.fit(network(), Once(), 5, progress=False, samples=2)


def test_a_last_batch_of_one_is_refused_where_batchnorm_needs_two() -> None:
    def normed(outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, outputs))

    with pytest.raises(ValueError, match="the last batch of train_loader has one example.*drop_last=True"):
        varlearn.fit(normed(2), loader(classes(17)), 1, progress=False, samples=2)
    data = loader((classes(108)[0], numbers(108)[1]))
    fitted = varlearn.fit(normed(1), data, 1, progress=False, samples=2)
    assert fitted.predictor.look.n == 96  # a tenth is held out, and one more: 97 would leave one


def test_inputs_that_are_nan_are_named(tmp_path: Path) -> None:
    data = [(X, Y), (torch.cat([X[:6], HOLES[:2]]), Y)]
    with pytest.raises(
        NonFiniteLossError, match="nan at step 2; there is no .*: 2 of the 8 inputs of its batch are NaN"
    ):
        varlearn.fit(network(), data, 1, progress=False, samples=2, folder=tmp_path / "run")


@pytest.mark.parametrize("data", [[(X, Y), (X, Y + 5)], [(X, Y), (X, Y - 1)]])
def test_a_fit_that_fails_before_its_first_checkpoint_leaves_no_folder(data: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch 1 of train_loader"):
        varlearn.fit(network(), data, 1, progress=False, samples=2, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    varlearn.fit(network(), [(X, Y)], 1, progress=False, samples=2, folder=tmp_path / "run")
    with pytest.raises(ValueError, match="already holds a run"):
        varlearn.fit(network(), data, 1, progress=False, samples=2, folder=tmp_path / "run")
    assert (tmp_path / "run" / "posterior.safetensors").exists()


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
