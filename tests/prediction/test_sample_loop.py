"""Properties that every kind of prediction inherits from the loop."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from varlearn.posterior import DiagGaussian, Mixture, Point
from varlearn.prediction import Dropout, Linearized, Weights, predict
from varlearn.prediction.sample_loop import Request, strata


class Counting(nn.Module):
    """Counts forward passes, and how often its weight was written to (its version)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(3)
        self.calls, self.versions, self.fail_at = 0, set[int](), -1

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.calls == self.fail_at:
            raise KeyboardInterrupt
        self.calls += 1
        self.versions.add(self.layer.weight._version)
        return self.norm(self.drop(self.layer(inputs)))


@pytest.fixture
def model() -> Counting:
    model = Counting()
    model.drop.eval()
    return model


BATCHES = [(torch.randn(4, 2), torch.tensor([0, 1, 2, 0])), (torch.randn(3, 2), torch.tensor([1, 2, 0]))]


def test_samples_are_outside_and_batches_inside(model: Counting, around) -> None:
    predict(model, around(model), BATCHES, samples=5)
    assert model.calls == 5 * 2
    assert len(model.versions) == 5  # written once per sample, not per batch


@pytest.mark.parametrize("fail_at", [0, 1, 3])
@pytest.mark.parametrize("vectorize", [False, True])
def test_the_model_is_bitwise_back_after_ctrl_c(
    model: Counting, fail_at: int, vectorize: bool, around, state_of
) -> None:
    before, state = state_of(model), torch.get_rng_state()
    model.fail_at = fail_at
    with pytest.raises(KeyboardInterrupt):
        predict(model, around(model), BATCHES, samples=40, vectorize=vectorize)
    assert state_of(model) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_the_model_is_bitwise_back_after_a_dead_loader(model: Counting, around, state_of) -> None:
    class Dying:
        def __iter__(self):
            yield BATCHES[0]
            raise OSError("worker died")

    before = state_of(model)
    with pytest.raises(OSError, match="worker died"):
        predict(model, around(model), Dying(), samples=2)
    assert state_of(model) == before


@pytest.mark.parametrize("sampler", [Weights, Linearized, lambda q: Dropout()])
def test_the_model_is_bitwise_back_after_success(model: Counting, sampler, around, state_of) -> None:
    loader = DataLoader(TensorDataset(torch.randn(7, 2), torch.zeros(7, dtype=torch.int64)), batch_size=3)
    before, state = state_of(model), torch.get_rng_state()
    predict(model, sampler(around(model)), loader, samples=3)
    assert state_of(model) == before
    assert torch.equal(torch.get_rng_state(), state)  # a DataLoader draws from the global state on every pass
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_dropout_and_batchnorm_are_in_eval_mode(model: Counting, around) -> None:
    model.train()
    q = around(model).at_mean()
    whole = predict(model, q, BATCHES).log_probs
    rows = [(inputs[i : i + 1], targets[i : i + 1]) for inputs, targets in BATCHES for i in range(len(inputs))]
    torch.testing.assert_close(predict(model, q, rows).log_probs, whole)  # no statistics of the batch
    assert model.norm.num_batches_tracked is not None
    assert model.norm.num_batches_tracked.item() == 0


def test_more_samples_extend_fewer(model: Counting, around) -> None:
    for q in (around(model), Mixture([around(model), around(model, 0.5)])):
        few = predict(model, q, BATCHES, samples=2, keep_samples=True).sample_log_probs
        many = predict(model, q, BATCHES, samples=5, keep_samples=True).sample_log_probs
        assert few is not None
        assert many is not None
        parts = few.shape[0] // 2
        for part in range(parts):
            assert torch.equal(few[2 * part : 2 * part + 2], many[5 * part : 5 * part + 2])


def test_components_draw_different_noise(model: Counting, around) -> None:
    q = around(model)
    kept = predict(model, Mixture([q, q]), BATCHES, samples=2, keep_samples=True).sample_log_probs
    assert kept is not None
    assert not any(torch.equal(kept[a], kept[b]) for a in range(4) for b in range(a))


def test_a_component_without_buffers_takes_those_of_the_model() -> None:
    net = nn.Sequential(nn.BatchNorm1d(2, affine=True)).eval()
    params = {name: value.detach().clone() for name, value in net.named_parameters()}
    buffers = {name: value.clone() + 1 for name, value in net.named_buffers()}
    other, own = Point(params, fixed=buffers), Point(params)
    inputs = [torch.randn(4, 2)]
    alone = predict(net, own, inputs).log_probs
    mixed = predict(net, Mixture([other, own]), inputs, keep_samples=True).sample_log_probs
    assert mixed is not None
    assert torch.equal(mixed[1], alone)
    assert not torch.equal(mixed[0], alone)


@pytest.mark.parametrize("source", [Weights, Linearized])
def test_strata_of_a_mixture(source) -> None:
    point = Point({"w": torch.zeros(1)})
    q = DiagGaussian({"w": torch.zeros(1)}, {"w": torch.ones(1)}, ess=1.0)
    parts = strata(source(Mixture([q, Mixture([point, q])], weights=[1.0, 3.0])), samples=8)
    assert [(part.weight, part.samples) for part in parts] == [(0.25, 8), (0.375, 1), (0.375, 8)]
    assert all(type(part.sampler) is source for part in parts)


@pytest.mark.parametrize("samples", [0, -1, 2.0, "3"])
def test_bad_numbers_of_samples(samples) -> None:
    with pytest.raises(ValueError, match=r"samples=.* must be a whole number >= 1; the paper uses 64"):
        Request(samples=samples)


def test_refusals(model: Counting, around, state_of) -> None:
    q = around(model)
    before = state_of(model)
    with pytest.raises(ValueError, match="seed=1.5 must be an integer"):
        predict(model, q, BATCHES, seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a dict is neither a posterior nor a sampler"):
        predict(model, q.mean, BATCHES)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not fit the model: missing 'layer.weight'"):
        predict(model, Point({"norm.bias": torch.zeros(3)}), BATCHES)
    with pytest.raises(ValueError, match="vectorize=True stacks sampled weights, and Dropout samples something else"):
        predict(model, Dropout(), BATCHES, vectorize=True)
    with pytest.raises(ValueError, match="gave no batch"):
        predict(model, q, [], samples=1)
    assert model.calls == 0
    assert state_of(model) == before


def test_a_shuffled_order_is_noticed(model: Counting, around, state_of) -> None:
    class Shuffling:
        """Shuffles in a way that no attribute tells."""

        turn = 0

        def __iter__(self):
            self.turn += 1
            return iter(BATCHES if self.turn == 1 else BATCHES[::-1])

    before = state_of(model)
    with pytest.raises(ValueError, match="batch 0 differs from the first pass"):
        predict(model, around(model), Shuffling(), samples=2)
    assert state_of(model) == before
    predict(model, around(model), Shuffling(), samples=1)


def test_targets_may_be_lists(model: Counting, around) -> None:
    result = predict(model, around(model), [(torch.randn(2, 2), [1, 2])], samples=2)
    assert result.targets is not None
    assert result.targets.tolist() == [1, 2]


def test_outputs_keep_float64() -> None:
    net = nn.Linear(2, 2, bias=False).double()
    q = Point({"weight": torch.zeros(2, 2)})
    loader = [(torch.ones(1, 2, dtype=torch.float64), torch.tensor([0]))]
    assert predict(net, q, loader).log_probs.dtype == torch.float64


def test_inference_mode_around_it(model: Counting, around) -> None:
    q = around(model)
    wanted = predict(model, q, BATCHES, samples=3).log_probs
    with torch.inference_mode():
        got = predict(model, q, BATCHES, samples=3).log_probs
    assert torch.equal(wanted, got)
    model.layer(torch.randn(1, 2)).sum().backward()  # the weights are still ordinary ones
    assert model.layer.weight.grad is not None
