import math

import pytest
import torch

from varlearn.posterior import LowRankGaussian


@pytest.fixture
def q() -> LowRankGaussian:
    make = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=make, dtype=torch.float64)

    return LowRankGaussian(
        mean={"w": random(2, 2), "b": random(1)},
        var={"w": random(2, 2).square() + 0.1, "b": random(1).square() + 0.1},
        deviations={"w": random(3, 2, 2), "b": random(3, 1)},
    )


def dense(q: LowRankGaussian) -> torch.distributions.MultivariateNormal:
    mean = torch.cat([q.mean["w"].flatten(), q.mean["b"]])
    columns = torch.cat([q.deviations["w"].flatten(1), q.deviations["b"]], dim=1)  # (K, P)
    var = torch.cat([q.var["w"].flatten(), q.var["b"]])
    return torch.distributions.MultivariateNormal(mean, var.diag() / 2 + columns.T @ columns / (2 * (q.rank - 1)))


def flat(params: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([params["w"].flatten(), params["b"]])


def test_std_is_the_diagonal_of_the_covariance(q: LowRankGaussian) -> None:
    torch.testing.assert_close(flat(q.std), dense(q).covariance_matrix.diagonal().sqrt())


def test_log_prob_equals_the_dense_one(q: LowRankGaussian) -> None:
    for index in range(5):
        theta = q.sample(seed=1, index=index)
        torch.testing.assert_close(q.log_prob(theta), dense(q).log_prob(flat(theta)))


def test_samples_have_the_covariance_within_and_across_tensors(q: LowRankGaussian) -> None:
    count = 1500
    draws = torch.stack([flat(q.sample(seed=2, index=index)) for index in range(count)])
    exact = dense(q).covariance_matrix
    scale = exact.diagonal().sqrt()
    # An entry of an empirical covariance has the variance (C_ii C_jj + C_ij^2) / n.
    error = ((scale[:, None] * scale[None]) ** 2 + exact**2).sqrt() / math.sqrt(count)
    assert ((torch.cov(draws.T) - exact).abs() < 4.5 * error).all()
    assert ((draws.mean(0) - flat(q.mean)).abs() < 4.5 * scale / math.sqrt(count)).all()


def test_a_sample_is_a_function_of_seed_and_index(q: LowRankGaussian) -> None:
    first = q.sample(seed=1, index=4)
    q.sample(seed=1, index=5)
    assert torch.equal(flat(first), flat(q.sample(seed=1, index=4)))
    assert not torch.equal(flat(first), flat(q.sample(seed=1, index=5)))
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(flat(q.sample(generator)), flat(q.sample(generator)))


def test_mean_point_state_and_cast(q: LowRankGaussian) -> None:
    assert torch.equal(q.at_mean().sample()["w"], q.mean["w"])
    assert sorted(q.state_dict()) == ["b", "w"]
    half = q.to(dtype=torch.bfloat16)
    assert half.sample()["w"].dtype == torch.bfloat16
    assert half.rank == 3


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("deviations", {"w": torch.ones(1, 2)}, "K >= 2"),
        ("deviations", {"w": torch.ones(0, 2)}, "K >= 2"),
        ("deviations", {}, "K >= 2"),
        ("deviations", {"w": torch.ones(3, 5)}, r"deviations\['w'\] has shape \(5,\)"),
        ("var", {"w": torch.tensor([1.0, -1.0])}, "negative"),
        ("var", {"w": torch.tensor([1.0, math.inf])}, "non-finite"),
        ("var", {"x": torch.ones(2)}, "var lacks"),
    ],
)
def test_refusals(part: str, value: dict, message: str) -> None:
    arguments = {"mean": {"w": torch.zeros(2)}, "var": {"w": torch.ones(2)}, "deviations": {"w": torch.ones(2, 2)}}
    with pytest.raises(ValueError, match=message):
        LowRankGaussian(**{**arguments, part: value})


def test_ranks_must_agree() -> None:
    two = {"a": torch.zeros(1), "b": torch.zeros(1)}
    with pytest.raises(ValueError, match="one common rank"):
        LowRankGaussian(two, two, {"a": torch.zeros(2, 1), "b": torch.zeros(3, 1)})


def test_a_flat_direction_has_samples_but_no_density() -> None:
    q = LowRankGaussian({"w": torch.zeros(2)}, {"w": torch.zeros(2)}, {"w": torch.ones(2, 2)})
    sample = q.sample()["w"]
    assert sample[0] == sample[1] != 0.0
    with pytest.raises(ValueError, match="no density"):
        q.log_prob(q.mean)


def test_the_temperature_multiplies_the_covariance(q: LowRankGaussian) -> None:
    warm = q.at_temperature(4.0)
    torch.testing.assert_close(flat(warm.std), 2.0 * flat(q.std))
    torch.testing.assert_close(flat(warm.perturbation(1, 2)), 2.0 * flat(q.perturbation(1, 2)))
    theta = q.sample(seed=1)
    expected = torch.distributions.MultivariateNormal(flat(q.mean), 4.0 * dense(q).covariance_matrix)
    torch.testing.assert_close(warm.log_prob(theta), expected.log_prob(flat(theta)))
    assert warm.to(dtype=torch.float32).temperature == 4.0


def test_temperature_0_is_the_mean(q: LowRankGaussian) -> None:
    cold = q.at_temperature(0.0)
    assert torch.equal(flat(cold.sample(seed=4)), flat(q.mean))
    with pytest.raises(ValueError, match="temperature=0.0 leaves the mean alone"):
        cold.log_prob(q.mean)
    with pytest.raises(ValueError, match="temperature=-1.0 must be >= 0"):
        q.at_temperature(-1.0)
