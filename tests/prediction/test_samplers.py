import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

from varlearn.posterior import LowRankGaussian, Point
from varlearn.prediction import Dropout, Linearized, Weights, predict


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double().eval()


def test_weights_write_the_sample_in_place(net: nn.Module, around) -> None:
    q, weight, inputs = around(net), net[0].weight, torch.randn(6, 3, dtype=torch.float64)
    forward = Weights(q).draw(net, seed=2, index=3)
    assert net[0].weight is weight
    assert torch.equal(weight, q.sample(2, 3)["0.weight"])
    torch.testing.assert_close(forward(inputs), functional_call(net, q.sample(2, 3), inputs))


def test_many_draws_at_once_are_the_single_ones(net: nn.Module, around) -> None:
    q, inputs = around(net), torch.randn(6, 3, dtype=torch.float64)
    stacked = Weights(q).draw_many(net, 5, [4, 0, 9])(inputs)
    for row, index in enumerate((4, 0, 9)):
        torch.testing.assert_close(stacked[row], Weights(q).draw(net, 5, index)(inputs))


def test_fixed_tensors_are_written_at_the_start() -> None:
    net = nn.BatchNorm1d(2).eval()
    q = Point({"weight": torch.ones(2), "bias": torch.zeros(2)}, fixed={"running_mean": torch.tensor([1.0, 2.0])})
    Weights(q).start(net)
    assert net.running_mean is not None
    assert net.running_mean.tolist() == [1.0, 2.0]


def test_linearized_is_mean_plus_jacobian_times_perturbation(net: nn.Module, around) -> None:
    q, inputs = around(net, std=0.5), torch.randn(6, 3, dtype=torch.float64)
    sampler = Linearized(q)
    sampler.start(net)
    jacobian = jacrev(lambda params: functional_call(net, params, inputs))(q.mean)  # by name (6, 4, *shape)
    for index in range(3):
        step = q.perturbation(7, index)
        expected = net(inputs) + sum(
            torch.einsum("bcp,p->bc", jacobian[name].flatten(2), step[name].flatten()) for name in step
        )
        torch.testing.assert_close(sampler.draw(net, 7, index)(inputs), expected.detach())


def test_linearized_variance_is_that_of_the_glm(net: nn.Module, around) -> None:
    q, inputs = around(net, std=0.5), torch.randn(2, 3, dtype=torch.float64)
    sampler = Linearized(q)
    sampler.start(net)
    jacobian = jacrev(lambda params: functional_call(net, params, inputs))(q.mean)
    exact = sum((jacobian[name] * q.std[name]).square().flatten(2).sum(2) for name in q.mean)
    draws = torch.stack([sampler.draw(net, 0, index)(inputs) for index in range(400)])
    assert ((draws.var(0) / exact).sqrt() - 1).abs().max() < 4.5 / math.sqrt(2 * 400)


def test_linearized_works_for_any_gaussian(net: nn.Module, around) -> None:
    mean = around(net).mean
    zero, some = {n: torch.zeros_like(v) for n, v in mean.items()}, {n: torch.ones_like(v) for n, v in mean.items()}
    low = LowRankGaussian(mean, zero, {n: torch.stack([v, -v]) for n, v in some.items()})
    inputs = torch.randn(6, 3, dtype=torch.float64)
    for q in (low, Point(mean)):
        sampler = Linearized(q)
        sampler.start(net)
        move = sampler.draw(net, 0, 0)(inputs) - net(inputs)
        assert bool(move.any()) == isinstance(q, LowRankGaussian)


def test_linearized_falls_back_to_sample_minus_mean(net: nn.Module, around) -> None:
    q, inputs = around(net), torch.randn(6, 3, dtype=torch.float64)

    class Plain:
        mean, std, fixed = q.mean, q.std, None
        sample = staticmethod(q.sample)
        to = staticmethod(q.to)

    plain, fine = Linearized(Plain()), Linearized(q)
    fine.start(net)
    torch.testing.assert_close(plain.draw(net, 1, 1)(inputs), fine.draw(net, 1, 1)(inputs))


@pytest.mark.filterwarnings("error")
def test_attention_linearizes_and_vectorizes(around) -> None:
    net = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).double().eval()
    fast = torch.backends.mha.get_fastpath_enabled()
    q, inputs = around(net, std=1e-4), torch.randn(2, 5, 8, dtype=torch.float64)
    sampler = Linearized(q)
    with torch.no_grad():
        stacked = Weights(q).draw_many(net, 0, [0, 1])(inputs)
        linear = sampler.draw(net, 0, 1)(inputs)
        exact = Weights(q).draw(net, 0, 1)(inputs)
    torch.testing.assert_close(stacked[1], exact)
    torch.testing.assert_close(linear, exact, rtol=0, atol=1e-5)  # second order in a step of 1e-4
    assert torch.backends.mha.get_fastpath_enabled() == fast


def test_dropout_masks_are_a_function_of_seed_draw_and_batch() -> None:
    net = nn.Sequential(nn.Dropout(0.5)).eval()
    sampler = Dropout()
    sampler.start(net)
    ones = torch.ones(200)
    state = torch.get_rng_state()
    first = sampler.draw(net, seed=0, index=0)
    a, b = first(ones), first(ones)
    assert not torch.equal(a, b)  # batches differ
    again = sampler.draw(net, seed=0, index=0)
    assert torch.equal(again(ones), a)
    assert torch.equal(again(ones), b)
    assert not torch.equal(sampler.draw(net, seed=0, index=1)(ones), a)
    assert not torch.equal(sampler.draw(net, seed=1, index=0)(ones), a)
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_leaves_the_rest_in_eval_mode() -> None:
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.1), nn.Dropout(0.0), nn.LSTM(2, 2, 2, dropout=0.1)).eval()
    Dropout().start(net)
    assert [module.training for module in net] == [False, True, False, True]


def test_dropout_of_ones_own() -> None:
    class Own(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(x, 0.5, self.training)

    net = nn.Sequential(Own()).eval()
    with pytest.raises(ValueError, match=r"no active dropout module \(p > 0\)"):
        Dropout().start(net)
    Dropout(modules=(Own,)).start(net)
    assert net[0].training


def test_masks_reach_the_layers_of_transformers_whose_fast_path_has_none() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True)
    net = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(12, 2))
    found = predict(net, Dropout(), [torch.randn(2, 3, 4)], samples=4, keep_samples=True, progress=False)
    assert found.sample_log_probs is not None
    assert len(found.sample_log_probs[:, 0, 0].unique()) == 4
