import math
from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from varlearn.posterior import DiagGaussian, Point


def gaussian(**changes) -> DiagGaussian:
    arguments = {
        "mean": {"w": torch.tensor([[1.0, -2.0], [0.5, 0.0]]), "b": torch.tensor([3.0])},
        "hess": {"w": torch.tensor([[0.5, 0.1], [-0.005, 2.0]]), "b": torch.tensor([1.0])},
        "ess": {"w": 100.0, "b": 400.0},
        "weight_decay": {"w": 0.01, "b": 0.0},
    }
    return DiagGaussian(**{**arguments, **changes})


def test_std_is_line_8_of_the_algorithm_per_group() -> None:
    q = gaussian()
    torch.testing.assert_close(q.std["w"], 1.0 / (100.0 * (q.hess["w"] + 0.01)).sqrt())
    torch.testing.assert_close(q.std["b"], torch.tensor([1.0 / math.sqrt(400.0)]))
    torch.testing.assert_close(q.precision["w"], q.std["w"] ** -2)


@given(
    hess=st.floats(-0.009, 1e6),
    ess=st.floats(1e-3, 1e12),
    weight_decay=st.floats(0.01, 1e3),
)
def test_std_for_any_scale(hess: float, ess: float, weight_decay: float) -> None:
    q = DiagGaussian({"w": torch.zeros(1)}, {"w": torch.tensor([hess])}, ess=ess, weight_decay=weight_decay)
    exact = 1.0 / math.sqrt(ess * (torch.tensor(hess).item() + weight_decay))
    # float32 rounds h + delta by 6e-8 of its larger part, which cancellation magnifies
    assert q.std["w"].item() == pytest.approx(exact, rel=1e-6 * max(1.0, weight_decay / (hess + weight_decay)))


def test_reading_does_not_change_the_posterior() -> None:
    q = gaussian()
    hess = q.hess["w"].clone()
    _ = q.std, q.precision, q.sample(), q.log_prob(q.mean)
    assert torch.equal(q.hess["w"], hess)


def test_sample_moments() -> None:
    q = gaussian()
    count = 2000
    draws = torch.stack([q.sample(seed=1, index=index)["w"] for index in range(count)]).double()
    error = q.std["w"].double() / math.sqrt(count)
    assert ((draws.mean(0) - q.mean["w"]).abs() < 4.5 * error).all()
    assert ((draws.std(0) / q.std["w"] - 1).abs() < 4.5 / math.sqrt(2 * count)).all()
    correlation = torch.corrcoef(draws.flatten(1).T) - torch.eye(4, dtype=torch.float64)
    assert correlation.abs().max() < 4.5 / math.sqrt(count)


def test_a_sample_is_a_function_of_seed_and_index() -> None:
    q = gaussian()
    wanted = q.sample(seed=3, index=7)
    for index in (0, 7, 2):
        q.sample(seed=9, index=index)
    again = q.sample(seed=3, index=7)
    assert all(torch.equal(wanted[name], again[name]) for name in wanted)
    assert not torch.equal(wanted["w"], q.sample(seed=4, index=7)["w"])


def test_the_order_of_names_does_not_matter() -> None:
    q = gaussian()
    turned = gaussian(mean=dict(reversed(q.mean.items())), hess=dict(reversed(q.hess.items())))
    assert torch.equal(q.sample(2, 5)["w"], turned.sample(2, 5)["w"])


def test_the_global_random_state_is_not_consumed() -> None:
    before = torch.get_rng_state()
    gaussian().sample(seed=0)
    assert torch.equal(before, torch.get_rng_state())


def test_a_generator_may_be_given() -> None:
    q = gaussian()
    first = q.sample(torch.Generator().manual_seed(1))
    second = q.sample(torch.Generator().manual_seed(1), index=5)
    assert torch.equal(first["w"], second["w"])
    generator = torch.Generator().manual_seed(1)
    q.sample(generator)
    assert not torch.equal(first["w"], q.sample(generator)["w"])


def test_perturbation_is_the_random_part_of_a_sample() -> None:
    q = gaussian().to(dtype=torch.float64)
    noise, sample = q.perturbation(1, 2), q.sample(1, 2)
    torch.testing.assert_close(noise["w"] + q.mean["w"], sample["w"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_noise_is_right_in_every_dtype_at_imagenet_size(dtype: torch.dtype) -> None:
    # lambda (h + delta) = 1.3e7 would overflow float16
    q = DiagGaussian({"w": torch.zeros(20_000)}, {"w": torch.full((20_000,), 10.0)}, ess=1.3e6).to(dtype=dtype)
    assert q.std["w"][0].item() == pytest.approx(1.0 / math.sqrt(1.3e7), rel=1e-3)
    sample = q.sample()["w"]
    assert sample.dtype == dtype
    assert sample.float().std().item() == pytest.approx(1.0 / math.sqrt(1.3e7), rel=0.03)


def test_a_float32_mean_keeps_noise_below_half_precision() -> None:
    mean = torch.full((1000,), 1.0)
    q = DiagGaussian({"w": mean}, {"w": torch.ones(1000)}, ess=1e8)
    assert q.sample()["w"].std().item() == pytest.approx(1e-4, rel=0.2)


def test_log_prob_is_that_of_independent_normals() -> None:
    q = gaussian()
    theta = q.sample(seed=4)
    expected = sum(
        torch.distributions.Normal(q.mean[name].double(), q.std[name].double()).log_prob(theta[name].double()).sum()
        for name in theta
    )
    torch.testing.assert_close(q.log_prob(theta), expected, rtol=1e-6, atol=1e-6)


def test_log_prob_of_weights_known_exactly() -> None:
    q = DiagGaussian({"w": torch.zeros(2)}, {"w": torch.tensor([1.0, math.inf])}, ess=1.0)
    assert q.log_prob({"w": torch.zeros(2)}).item() == pytest.approx(-0.5 * math.log(2 * math.pi))
    assert q.log_prob({"w": torch.tensor([0.0, 1e-9])}).item() == -math.inf
    assert q.sample(seed=1)["w"][1].item() == 0.0


def test_prior() -> None:
    q = gaussian(weight_decay=0.25, prior_mean={"b": torch.tensor([2.0])})
    prior = q.prior()
    torch.testing.assert_close(prior.std["w"], torch.full((2, 2), 1.0 / math.sqrt(100.0 * 0.25)))
    assert prior.mean["b"].item() == 2.0
    assert not prior.mean["w"].any()
    with pytest.raises(ValueError, match=r"weight_decay=0.0 of 'b' is no proper prior"):
        gaussian().prior()


def test_the_temperature_multiplies_variances_and_leaves_ess_hess_and_the_prior_alone() -> None:
    q = gaussian(weight_decay=0.25)
    warm = q.at_temperature(4.0)
    torch.testing.assert_close(warm.std["w"], 2.0 * q.std["w"])
    torch.testing.assert_close(warm.precision["w"], q.precision["w"] / 4.0)
    noise = q.perturbation(seed=3, index=5)["w"]
    torch.testing.assert_close(warm.perturbation(seed=3, index=5)["w"], 2.0 * noise)  # common random numbers
    assert warm.ess == q.ess
    assert warm.hess == q.hess
    assert torch.equal(warm.prior().std["w"], q.prior().std["w"])
    assert warm.temperature == 4.0
    assert "temperature 4" in repr(warm)
    for bad in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="temperature"):
            q.at_temperature(bad)


def test_temperature_1_is_bitwise_the_posterior() -> None:
    q = gaussian()
    assert torch.equal(q.at_temperature(1.0).sample(2, 7)["w"], q.sample(2, 7)["w"])
    assert "temperature" not in repr(q)


def test_temperature_0_is_the_mean() -> None:
    cold = gaussian().at_temperature(0.0)
    assert torch.equal(cold.sample(seed=2)["w"], cold.mean["w"])
    assert not cold.std["w"].any()
    assert cold.precision["w"].isinf().all()
    assert cold.log_prob(cold.mean).item() == 0.0


def test_tempered_multiplies_the_temperature() -> None:
    q = gaussian()
    assert q.tempered(4.0).temperature == 4.0
    assert q.tempered(4.0).tempered(0.25).temperature == 1.0
    assert q.tempered(4.0).ess == q.ess
    with pytest.raises(ValueError, match="temperature"):
        q.tempered(-1.0)


def test_the_temperature_survives_casts_and_gathering() -> None:
    q = gaussian().at_temperature(0.5)
    assert q.to(dtype=torch.float64).temperature == 0.5
    assert q.gathered().temperature == 0.5
    torch.testing.assert_close(q.to(dtype=torch.float64).std["w"].float(), q.std["w"])


def test_at_mean_is_a_point_that_keeps_the_rest() -> None:
    q = gaussian(fixed={"n": torch.tensor(1)}, tied={"w2": "w"})
    point = q.at_mean()
    assert isinstance(point, Point)
    assert point.fixed is not None
    assert sorted(point.state_dict()) == ["b", "n", "w", "w2"]
    assert torch.equal(point.sample(seed=8)["w"], q.mean["w"])


def test_state_dict_loads_into_the_model() -> None:
    net = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    net[1].requires_grad_(False)
    sgd = torch.optim.SGD(net[0].parameters(), lr=0.1)
    q = DiagGaussian.from_optimizer(net, sgd, ess=10.0)
    sample = q.sample(seed=2)
    net.load_state_dict(q.state_dict(sample), strict=True)
    assert torch.equal(net[0].weight, sample["0.weight"])
    net.load_state_dict(q.state_dict(), strict=True)
    assert torch.equal(net[0].weight, q.mean["0.weight"])


def test_to_casts_floats_only() -> None:
    q = gaussian(fixed={"n": torch.tensor(1), "s": torch.ones(1)}, prior_mean={"b": torch.ones(1)})
    wide = q.to(dtype=torch.float64)
    assert {value.dtype for part in (wide.mean, wide.hess, wide.prior_mean) for value in part.values()} == {
        torch.float64
    }
    assert wide.fixed is not None
    assert (wide.fixed["n"].dtype, wide.fixed["s"].dtype) == (torch.int64, torch.float64)
    assert torch.equal(wide.to(dtype=torch.float32).mean["w"], q.mean["w"])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_tensors_without_dimensions_or_elements(shape: tuple[int, ...]) -> None:
    q = DiagGaussian({"w": torch.ones(shape)}, {"w": torch.ones(shape)}, ess=1.0)
    assert q.sample()["w"].shape == shape
    assert math.isfinite(q.log_prob(q.mean).item())


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        gaussian().ess = {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ess": 0.0}, r"ess=0.0 of 'w' must be > 0 and finite in float32; use the number of examples"),
        ({"ess": math.nan}, "ess=nan"),
        ({"ess": {"w": 1.0}}, r"ess lacks \['b'\]"),
        ({"weight_decay": -0.1}, r"weight_decay=-0.1 of 'w' must be >= 0"),
        ({"weight_decay": math.inf}, "weight_decay=inf"),
        ({"ess": 1e308}, r"ess=1e\+308 of 'w' must be > 0 and finite in float32"),
        ({"temperature": 1e308}, r"temperature=1e\+308 must be >= 0 and finite in float32"),
        ({"hess": {"w": torch.zeros(2, 2), "b": torch.zeros(1)}}, r"hess=0.0 of 'b' .* \(1 of 1 entries are not\)"),
        ({"hess": {"w": torch.full((2, 2), math.nan), "b": torch.ones(1)}}, r"hess=nan of 'w'"),
        ({"hess": {"w": torch.zeros(4), "b": torch.ones(1)}}, r"hess\['w'\] has shape \(4,\)"),
        ({"prior_mean": {"x": torch.zeros(1)}}, r"prior_mean lacks \[\] and has \['x'\]"),
        ({"mean": {}}, "names no tensor"),
    ],
)
def test_refusals_name_value_rule_and_cure(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gaussian(**changes)
