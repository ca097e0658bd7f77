import math

import pytest
import torch

from varlearn.posterior import DiagGaussian, Mixture, Point, components


def normal(mean: float, std: float) -> DiagGaussian:
    return DiagGaussian({"w": torch.tensor([mean])}, {"w": torch.tensor([std**-2])}, ess=1.0)


def point(value: float) -> Point:
    return Point({"w": torch.tensor([value])})


def test_a_point_has_no_spread_and_gives_copies() -> None:
    q = point(2.0)
    assert not q.std["w"].any()
    assert not q.perturbation(seed=5)["w"].any()
    q.sample()["w"].add_(1.0)
    assert q.mean["w"].item() == 2.0
    assert not hasattr(q, "log_prob")


def test_mixture_moments_are_those_of_its_samples() -> None:
    q = Mixture((normal(-1.0, 0.5), normal(2.0, 1.0)), weights=(1.0, 3.0))
    count = 1500
    draws = torch.cat([q.sample(seed=1, index=index)["w"] for index in range(count)]).double()
    # by hand: mean 1/4 (-1) + 3/4 2 = 1.25; variance 1/4 (0.25 + 2.25^2) + 3/4 (1 + 0.75^2)
    assert q.mean["w"].item() == pytest.approx(1.25)
    assert q.std["w"].item() ** 2 == pytest.approx(0.25 * (0.25 + 5.0625) + 0.75 * 1.5625)
    assert draws.mean().item() == pytest.approx(1.25, abs=4.5 * q.std["w"].item() / math.sqrt(count))
    assert draws.std().item() == pytest.approx(q.std["w"].item(), rel=0.1)


def test_components_are_chosen_with_their_weights() -> None:
    q = Mixture([point(0.0), point(1.0), point(2.0)], weights=[1, 1, 2])
    count = 2000
    chosen = torch.tensor([q.choose(seed=0, index=index) for index in range(count)])
    shares = torch.bincount(chosen, minlength=3) / count
    assert torch.allclose(shares, torch.tensor(q.weights), atol=4.5 * 0.5 / math.sqrt(count))
    assert all(q.sample(0, index)["w"].item() == chosen[index] for index in range(20))


def test_a_sample_is_a_function_of_seed_and_index() -> None:
    q = Mixture((normal(-1.0, 0.5), normal(2.0, 1.0)))
    wanted = q.sample(3, 9)["w"]
    q.sample(3, 10)
    assert torch.equal(wanted, q.sample(3, 9)["w"])


def test_nested_mixtures_are_dissolved() -> None:
    inner = Mixture([point(1.0), point(2.0)], weights=[1.0, 3.0])
    q = Mixture([inner, point(3.0)], weights=[2.0, 2.0])
    assert [component.mean["w"].item() for component in q.components] == [1.0, 2.0, 3.0]
    assert q.weights == (0.125, 0.375, 0.5)
    assert components(q) == list(zip(q.weights, q.components, strict=True))


def test_log_prob_is_that_of_the_mixture() -> None:
    q = Mixture((normal(-1.0, 0.5), normal(2.0, 1.0)), weights=(1.0, 3.0))
    oracle = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(torch.tensor([0.25, 0.75], dtype=torch.float64)),
        torch.distributions.Normal(torch.tensor([-1.0, 2.0]).double(), torch.tensor([0.5, 1.0]).double()),
    )
    for value in (-3.0, 0.0, 2.5):
        expected = oracle.log_prob(torch.tensor(value, dtype=torch.float64))
        torch.testing.assert_close(q.log_prob({"w": torch.tensor([value])}), expected)


def test_points_have_no_density() -> None:
    with pytest.raises(TypeError, match="component 1 is a Point, which has no density"):
        Mixture([normal(0.0, 1.0), point(0.0)]).log_prob({"w": torch.zeros(1)})


def test_to_keeps_weights() -> None:
    q = Mixture([normal(0.0, 1.0), point(1.0)], weights=[1.0, 3.0]).to(dtype=torch.float64)
    assert q.weights == (0.25, 0.75)
    assert {component.mean["w"].dtype for component in q.components} == {torch.float64}


@pytest.mark.parametrize(
    ("parts", "weights", "message"),
    [
        ([], None, r"components=\(\) is empty"),
        ([point(0.0)], [1.0, 2.0], "2 weights for 1 components"),
        ([point(0.0)], [0.0], r"weight=0.0 must be > 0"),
        ([point(0.0)], [math.nan], r"weight=nan must be > 0"),
        ([point(0.0), Point({"x": torch.zeros(1)})], None, r"component 1 lacks \['w'\] and has \['x'\]"),
        (
            [point(0.0), Point({"x": torch.zeros(1)})],
            None,
            "component 1, a Point, cannot be mixed with component 0, a Po",
        ),
        ([point(0.0), Point({"w": torch.zeros(2)})], None, r"component 1\['w'\] has shape \(2,\)"),
    ],
)
def test_refusals(parts: list, weights: list | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mixture(parts, weights)


def test_a_point_refuses_what_is_no_weight() -> None:
    with pytest.raises(ValueError, match="NaN"):
        point(math.nan)


def test_at_the_mean_a_point_is_itself_and_a_mixture_an_ensemble_of_means() -> None:
    point = Point({"w": torch.ones(2)})
    wide = DiagGaussian({"w": torch.zeros(2)}, {"w": torch.ones(2)}, ess=1.0)
    assert point.at_mean() is point
    found = Mixture((wide, point), weights=(3.0, 1.0)).at_mean()
    assert found.weights == (0.75, 0.25)
    assert all(isinstance(component, Point) for component in found.components)
    assert torch.equal(found.mean["w"], torch.full((2,), 0.25))


def test_a_mixture_keeps_and_sets_the_temperatures_of_its_components() -> None:
    q = Mixture((normal(0.0, 1.0).at_temperature(0.25), point(2.0)), weights=(1.0, 3.0))
    first = q.to(dtype=torch.float64).components[0]
    assert isinstance(first, DiagGaussian)
    assert first.temperature == 0.25
    warm = q.at_temperature(9.0)
    assert warm.weights == q.weights
    assert warm.components[0].std["w"].item() == pytest.approx(3.0)
    assert warm.components[1] is q.components[1]
    with pytest.raises(ValueError, match="temperature"):
        point(1.0).at_temperature(-1.0)


def test_the_state_of_a_point_has_its_weights_or_others_and_what_is_fixed() -> None:
    mean, fixed = {"w": torch.ones(2)}, {"running_mean": torch.zeros(2)}
    point = Point(mean, fixed, {"other": "w"})
    assert set(point.state_dict()) == {"w", "other", "running_mean"}
    state = point.state_dict({"w": torch.full((2,), 3.0)})
    assert state["w"].tolist() == state["other"].tolist() == [3.0, 3.0]
    assert state["running_mean"].tolist() == [0.0, 0.0]


def test_a_point_moves_with_all_that_belongs_to_it() -> None:
    fixed = {"running_mean": torch.zeros(2), "count": torch.tensor(3)}
    moved = Point({"w": torch.ones(2)}, fixed, {"other": "w"}).to(dtype=torch.float64)
    assert {name: value.dtype for name, value in moved.state_dict().items()} == {
        "w": torch.float64, "other": torch.float64, "running_mean": torch.float64, "count": torch.int64,
    }  # fmt: skip
    alone = point(1.0).to(dtype=torch.float64)
    assert alone.fixed is None
    assert alone.tied == {}


def test_the_first_sample_of_seed_0_is_the_default() -> None:
    q = Mixture([normal(0.0, 1.0), normal(5.0, 1.0)])
    assert torch.equal(q.sample()["w"], q.sample(0, 0)["w"])
    assert [q.choose(seed=seed) for seed in range(20)] == [q.choose(seed, 0) for seed in range(20)]
    assert [q.choose(index=index) for index in range(20)] == [q.choose(0, index) for index in range(20)]
    wide = q.components[0]
    assert torch.equal(wide.sample()["w"], wide.sample(0, 0)["w"])
    assert len({float(wide.sample(*at)["w"]) for at in ((0, 0), (0, 1), (1, 0), (1, 1))}) == 4


def test_an_infinite_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="weight=inf must be > 0 and finite"):
        Mixture([point(0.0), point(1.0)], [1.0, math.inf])


def test_every_finite_temperature_is_accepted() -> None:
    largest = torch.finfo(torch.float32).max
    for temperature in (0.0, 1e-30, largest):
        assert point(1.0).at_temperature(temperature).mean["w"].item() == 1.0
    for temperature in (2 * largest, math.inf, math.nan, -1e-30):
        with pytest.raises(ValueError, match="must be >= 0 and finite in float32"):
            point(1.0).at_temperature(temperature)
