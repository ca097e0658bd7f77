"""Dropout in networks that have none."""

import copy
import pickle

import pytest
import torch
from torch import nn

from varlearn import insert_dropout
from varlearn.approximations.dropout_insertion import drops
from varlearn.models import MODELS
from varlearn.prediction import Dropout, predict


def rates(model: nn.Module) -> list[float]:
    return [module.p for module in model.modules() if isinstance(module, nn.Dropout)]


def test_names_values_and_the_function_in_eval_mode_stay() -> None:
    net = MODELS["resnet20"].function()
    images = torch.randn(2, 3, 32, 32)
    before, expected = {k: v.clone() for k, v in net.state_dict().items()}, net.eval()(images)
    assert insert_dropout(net, 0.1) is net
    assert net.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(net(images), expected)
    assert rates(net) == [0.1] * 21  # after each of the 19 + 2 thresholded units
    net.train()
    assert not torch.equal(net(images), net(images))


def test_each_activation_is_scaled_and_dropped_at_the_rate() -> None:
    net = insert_dropout(nn.Sequential(nn.ReLU(), nn.Hardtanh(0.0, 9.0)), 0.2).train()
    out = net(torch.ones(100_000))
    assert sorted(out.unique().tolist()) == pytest.approx([0.0, 1.25])
    assert (out == 0).float().mean().item() == pytest.approx(0.2, abs=0.005)


@pytest.mark.parametrize(
    "name", ["resnet18", "densenet121", "lenet", "small_cnn", "frn_cnn", "mlp", "gru", "gpt2_tiny"]
)
def test_the_networks_of_the_package_drop_and_their_outputs_do_not(name: str) -> None:
    row = MODELS[name]
    known = {"classes": 5, "hidden": (7,), "vocab": 64, "context": 8, "channels": 3, "inputs": 12, "outputs": 5}
    net = insert_dropout(row.build(known), 0.5).train()
    assert rates(net)
    inputs = torch.randint(64, (2, 8)) if name in ("gru", "gpt2_tiny") else torch.randn(2, 3, 32, 32)
    inputs = torch.randn(2, 12) if name == "mlp" else torch.randn(2, 3, 28, 28) if name == "lenet" else inputs
    if name == "small_cnn":
        inputs = torch.randn(2, 3, 28, 28)
    out = net(inputs)
    out = getattr(out, "logits", out)
    assert not bool((out == 0).any())


def test_a_network_of_functions_drops_after_its_hidden_layers() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 5), nn.Linear(5, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.relu(self.first(x)))

    net = insert_dropout(Functional(), 0.3)
    assert [name for name, module in net.named_modules() if isinstance(module, nn.Dropout)] == [
        "first.inserted_dropout"
    ]


class _HeadFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(5, 2), nn.Linear(2, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)))


class _OneActivation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act, self.first, self.second = nn.Softplus(), nn.Linear(2, 5), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"rates": self.act(self.second(self.act(self.first(x))))}


@pytest.mark.parametrize(("network", "place"), [(_HeadFirst, "head"), (_OneActivation, "act")])
@pytest.mark.parametrize("training", [True, False])
def test_a_network_whose_outputs_would_be_dropped_is_refused_in_its_first_pass(
    network: type[nn.Module], place: str, training: bool
) -> None:
    net = insert_dropout(network()).train(training)
    with pytest.raises(ValueError, match=rf"output of the network is that of {place!r}, which drops; .*nn.Dropout"):
        net(torch.ones(3, 2))


def test_a_module_that_is_used_twice_drops_anew_each_time() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act, self.last = nn.ReLU(), nn.Linear(1, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last((self.act(x) - self.act(x))[:, None])

    net = insert_dropout(Residual(), 0.5).train()
    out = net(torch.ones(4_000))
    assert (out == net.last.bias).float().mean().item() == pytest.approx(0.5, abs=0.05)  # both masks are equal


def test_it_can_be_copied_pickled_and_predicted_with() -> None:
    net = insert_dropout(nn.Sequential(nn.Linear(1, 30), nn.Tanh(), nn.Linear(30, 2)), 0.5)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        found = predict(other, Dropout(), [torch.ones(2, 1)], samples=8, keep_samples=True, progress=False)
        same = predict(net, Dropout(), [torch.ones(2, 1)], samples=8, keep_samples=True, progress=False)
        assert found.sample_log_probs is not None
        assert same.sample_log_probs is not None
        assert torch.equal(found.sample_log_probs, same.sample_log_probs)
        assert len(found.sample_log_probs[:, 0, 0].unique()) == 8


def test_wrong_use_is_refused_with_its_cure() -> None:
    with pytest.raises(ValueError, match=r"rate=1.0 must be > 0 and < 1; 0.05 is the paper's"):
        insert_dropout(nn.Sequential(nn.ReLU(), nn.Identity()), 1.0)
    with pytest.raises(ValueError, match=r"has active dropout already, and must have none; leave insert_dropout out"):
        insert_dropout(insert_dropout(nn.Sequential(nn.ReLU(), nn.Identity())))
    with pytest.raises(ValueError, match=r"Linear has no activation and no hidden layer to drop; insert nn.Dropout"):
        insert_dropout(nn.Linear(2, 2))
    assert drops(nn.MultiheadAttention(4, 2, dropout=0.1))
    assert not drops(nn.Linear(1, 1))
