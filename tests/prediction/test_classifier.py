import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset

from varlearn.posterior import Mixture, Point
from varlearn.prediction import Dropout, Predictions, predict

X = torch.randn(23, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.arange(23) % 4
LOADER = DataLoader(TensorDataset(X, Y), batch_size=5)


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def brute_force(net: nn.Module, posterior, indices: list[int], seed: int = 0) -> torch.Tensor:
    """Probabilities of each sample, (S, N, C), by functional calls on the whole data."""
    return torch.stack([functional_call(net, posterior.sample(seed, i), X).softmax(-1) for i in indices]).detach()


@pytest.mark.parametrize("vectorize", [False, True])
def test_the_average_of_probabilities(net: nn.Module, around, vectorize: bool) -> None:
    q = around(net, 0.5)
    result = predict(net, q, LOADER, samples=19, seed=3, keep_samples=True, vectorize=vectorize)
    probs = brute_force(net, q, list(range(19)), seed=3)
    torch.testing.assert_close(result.log_probs.exp(), probs.mean(0))
    assert result.sample_log_probs is not None
    torch.testing.assert_close(result.sample_log_probs.exp(), probs)
    assert torch.equal(result.targets, Y)
    torch.testing.assert_close(result.sample_weights, torch.full((19,), 1 / 19, dtype=torch.float64))
    assert result.seed == 3


def test_the_size_of_batches_does_not_matter(net: nn.Module, around) -> None:
    q = around(net, 0.5)
    whole = predict(net, q, [(X, Y)], samples=4).log_probs
    torch.testing.assert_close(predict(net, q, LOADER, samples=4).log_probs, whole)


def test_uncertainty_is_decomposed(net: nn.Module, around) -> None:
    q = around(net, 0.5)
    result = predict(net, q, LOADER, samples=10)
    probs = brute_force(net, q, list(range(10)))
    expected = torch.distributions.Categorical(probs=probs).entropy().mean(0)
    total = torch.distributions.Categorical(probs=probs.mean(0)).entropy()
    torch.testing.assert_close(result.expected_entropy, expected)
    torch.testing.assert_close(result.predictive_entropy, total)
    torch.testing.assert_close(result.mutual_information, total - expected)
    assert (result.mutual_information > 0).all()


def test_a_point_has_no_mutual_information(net: nn.Module, around) -> None:
    result = predict(net, around(net).at_mean(), LOADER, samples=64)
    assert result.sample_weights.tolist() == [1.0]
    assert result.mutual_information.abs().max() < 1e-12
    torch.testing.assert_close(result.log_probs, net(X).log_softmax(-1).detach())


@pytest.mark.parametrize("vectorize", [False, True])
def test_a_mixture_is_the_weighted_mean_of_component_means(net: nn.Module, around, vectorize: bool) -> None:
    q, wide = around(net, 0.1), around(net, 1.0)
    point = Point({name: torch.zeros_like(value) for name, value in q.mean.items()})
    mixture = Mixture([q, wide, point], weights=[0.5, 0.3, 0.2])
    result = predict(net, mixture, LOADER, samples=6, vectorize=vectorize)
    narrow = brute_force(net, q, [0, 3, 6, 9, 12, 15]).mean(0)
    broad = brute_force(net, wide, [1, 4, 7, 10, 13, 16]).mean(0)
    expected = 0.5 * narrow + 0.3 * broad + 0.2 * 0.25
    torch.testing.assert_close(result.log_probs.exp(), expected)
    assert result.sample_weights.sum().item() == pytest.approx(1.0)
    assert len(result.sample_weights) == 13


def test_a_deep_ensemble(net: nn.Module) -> None:
    members = [{name: torch.randn_like(value) for name, value in net.named_parameters()} for _ in range(3)]
    result = predict(net, Mixture([Point(member) for member in members]), LOADER)
    expected = torch.stack([functional_call(net, member, X).softmax(-1) for member in members]).mean(0)
    torch.testing.assert_close(result.log_probs.exp(), expected.detach())


def test_mc_dropout_averages_masks() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2, bias=False)).double()
    nn.init.eye_(net[1].weight)
    inputs = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    result = predict(net, Dropout(), [inputs], samples=400)
    # half of the masks keep the input (times 2), half drop it
    expected = 0.5 * torch.softmax(torch.tensor([2.0, 0.0]), 0)[0].item() + 0.5 * 0.5
    assert result.log_probs.exp()[0, 0].item() == pytest.approx(expected, abs=4.5 * 0.19 / math.sqrt(400))
    again = predict(net, Dropout(), [inputs], samples=400)
    assert torch.equal(again.log_probs, result.log_probs)


def test_forms_of_batches_and_outputs(net: nn.Module, around) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor, scale: float = 1.0) -> SimpleNamespace:
            return SimpleNamespace(logits=scale * self.net(x))

    q = around(net)
    wanted = predict(net, q, LOADER, samples=2)
    model, inner = Wrapped(), around(Wrapped())
    assert torch.equal(predict(model, inner, [{"x": X, "labels": Y}], samples=2).targets, Y)
    for loader in ([{"x": X, "labels": Y}], [((X, 1.0), Y)]):
        got = predict(model, inner, loader, samples=2)
        torch.testing.assert_close(got.log_probs, wanted.log_probs)
    unlabelled = predict(net, q, [X], samples=2)
    assert unlabelled.targets is None
    unpacked = predict(net, q, [(0, X, Y)], samples=2, unpack=lambda batch: (batch[1], batch[2]))
    torch.testing.assert_close(unpacked.log_probs, wanted.log_probs)


def test_classes_come_last_and_dimensions_between_are_kept(around) -> None:
    net = nn.Linear(2, 3)
    result = predict(net, around(net), [(torch.randn(4, 5, 2), torch.zeros(4, 5))], samples=2)
    assert result.log_probs.shape == (4, 5, 3)
    assert result.expected_entropy.shape == (4, 5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_are_averaged_in_float32(around, dtype: torch.dtype) -> None:
    net = nn.Linear(3, 4).to(dtype)
    q = around(nn.Linear(3, 4), 0.5)
    before = net.weight.clone()
    result = predict(net, q, [(X.to(dtype), Y)], samples=30)
    assert result.log_probs.dtype == torch.float32
    torch.testing.assert_close(result.log_probs.exp().sum(-1), torch.ones(23), atol=1e-5, rtol=0)
    assert torch.equal(net.weight, before)


def test_memory_does_not_grow_with_samples(net: nn.Module, around) -> None:
    q = around(net)
    few, many = (predict(net, q, LOADER, samples=samples) for samples in (1, 30))
    sizes = [sum(v.numel() for v in vars(p).values() if isinstance(v, torch.Tensor)) for p in (few, many)]
    assert sizes[1] - sizes[0] == 2 * 29  # the weight of each sample, and the NLL after it


def test_refusals(net: nn.Module, around) -> None:
    one = nn.Linear(3, 1).double()
    with pytest.raises(ValueError, match=r"outputs of shape \(5, 1\) must be logits .* torch.stack"):
        predict(one, around(one), LOADER, samples=1)

    class Pair(nn.Linear):
        def forward(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return super().forward(input), input

    pair = Pair(3, 2).double()
    with pytest.raises(TypeError, match="returned a tuple; it must return a tensor or an object with `logits`"):
        predict(pair, around(pair), LOADER, samples=1)
    q = around(net)
    wild = Point({name: torch.full_like(value, 1e308) for name, value in q.mean.items()})
    before = net[0].weight.clone()
    with pytest.raises(ValueError, match="NaN under a posterior sample"):
        predict(net, wild, LOADER)
    assert torch.equal(net[0].weight, before)


def test_predictions_hold_what_they_say() -> None:
    probs = torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]])
    p = Predictions(probs.mean(0).log(), None, torch.tensor([math.log(2) / 2]), torch.tensor([0.5, 0.5]), probs.log())
    # H(3/4, 1/4) - log(2)/2
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert p.mutual_information.item() == pytest.approx(entropy - math.log(2) / 2)
