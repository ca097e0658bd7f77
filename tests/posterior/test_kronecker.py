"""The Gaussian in a Kronecker basis, compared with its dense covariance; and what it refuses."""

import pytest
import torch

from varlearn.posterior import KroneckerGaussian


def posterior() -> tuple[KroneckerGaussian, torch.Tensor]:
    torch.manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(k, k).double()).Q.float() for k in (2, 3))
    scale = torch.rand(2, 3) + 0.5
    q = KroneckerGaussian({"w": torch.randn(2, 3)}, {"w": left}, {"w": right}, {"w": scale})
    basis = torch.kron(left, right).double()
    return q, basis @ scale.double().square().flatten().diag() @ basis.T


def test_moments_of_samples_and_density_are_those_of_the_dense_covariance() -> None:
    q, expected = posterior()
    draws = torch.stack([q.sample(seed=1, index=k)["w"].flatten().double() for k in range(4_000)])
    assert (draws.mean(0) - q.mean["w"].flatten()).abs().max() < 0.1
    assert (torch.cov(draws.T) - expected).abs().max() < 0.15
    torch.testing.assert_close(q.std["w"].flatten().double(), expected.diagonal().sqrt(), rtol=1e-5, atol=0.0)
    dense = torch.distributions.MultivariateNormal(q.mean["w"].flatten().double(), 0.5 * expected)
    at = torch.randn(2, 3)
    found = q.at_temperature(0.5).log_prob({"w": at})
    torch.testing.assert_close(found, dense.log_prob(at.flatten().double()), rtol=1e-5, atol=1e-5)


def test_vectors_have_one_column() -> None:
    one = torch.ones(1, 1)
    q = KroneckerGaussian({"b": torch.zeros(2)}, {"b": torch.eye(2)}, {"b": one}, {"b": torch.tensor([1.0, 3.0])})
    assert q.std["b"].tolist() == [1.0, 3.0]
    assert q.sample(1)["b"].shape == (2,)


def test_wrong_factors_are_refused_with_their_cure() -> None:
    q, _ = posterior()
    with pytest.raises(ValueError, match=r"left\['w'\] has shape \(3, 3\) and must be \(2, 2\) for a tensor of shape"):
        KroneckerGaussian(q.mean, q.right, q.right, q.scale)
    with pytest.raises(ValueError, match=r"scale\['w'\] has negative or non-finite entries"):
        KroneckerGaussian(q.mean, q.left, q.right, {"w": -q.scale["w"]})
    for value in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"scale\['w'\] has negative or non-finite entries"):
            KroneckerGaussian(q.mean, q.left, q.right, {"w": torch.full((2, 3), value)})
    with pytest.raises(ValueError, match=r"mean\['w'\] has NaN"):
        KroneckerGaussian({"w": torch.full((2, 3), float("nan"))}, q.left, q.right, q.scale)
    with pytest.raises(ValueError, match="scale and mean must have the same names"):
        KroneckerGaussian(q.mean, q.left, q.right, {"v": q.scale["w"]})
    with pytest.raises(ValueError, match="right and mean must have the same names"):
        KroneckerGaussian(q.mean, q.left, {}, q.scale)
    with pytest.raises(ValueError, match="temperature=-1.0 must be >= 0"):
        q.at_temperature(-1.0)
    cube = {"w": torch.ones(2, 3, 1)}
    with pytest.raises(ValueError, match="give matrices and vectors"):
        KroneckerGaussian(cube, {"w": torch.eye(2)}, {"w": torch.eye(3)}, cube)


def test_there_is_no_density_without_a_width() -> None:
    q, _ = posterior()
    with pytest.raises(ValueError, match=r"has zeros, so there is no density"):
        q.at_temperature(0.0).log_prob(q.mean)
    scale = q.scale["w"].clone()
    scale[0, 0] = 0.0
    flat = KroneckerGaussian(q.mean, q.left, q.right, {"w": scale})
    assert flat.sample(1)["w"].shape == (2, 3)
    with pytest.raises(ValueError, match=r"has zeros, so there is no density"):
        flat.log_prob(q.mean)
