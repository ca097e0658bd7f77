"""What every posterior promises: samples by number, moments, temperature, dtype, files, and a fit with its network."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from varlearn import posterior
from varlearn.posterior import DiagGaussian, KroneckerGaussian, LowRankGaussian, Mixture, Point
from varlearn.prediction import Linearized, predict
from varlearn.types import Posterior


def _network() -> nn.Linear:
    return nn.Linear(3, 2)


def _made() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator) + 0.2

    mean = {"weight": random(2, 3), "bias": random(2)}
    fixed: dict[str, torch.Tensor] = {}
    diag = DiagGaussian(mean, {"weight": random(2, 3), "bias": random(2)}, ess=20.0, weight_decay=0.1, fixed=fixed)
    deviations = {"weight": random(4, 2, 3), "bias": random(4, 2)}
    low = LowRankGaussian(mean, {"weight": random(2, 3), "bias": random(2)}, deviations, fixed)
    turn = {size: torch.linalg.qr(random(size, size)).Q for size in (1, 2, 3)}
    left, right = {"weight": turn[2], "bias": turn[2]}, {"weight": turn[3], "bias": turn[1]}
    kron = KroneckerGaussian(mean, left, right, {"weight": random(2, 3), "bias": random(2)}, fixed)
    point = Point(mean, fixed)
    return {"diag": diag, "low rank": low, "kronecker": kron, "point": point, "mixture": Mixture([diag, low, point])}


POSTERIORS = _made()
RANDOM = [name for name in POSTERIORS if name != "point"]
GAUSSIANS = ["diag", "low rank", "kronecker"]
BATCHES = [torch.ones(4, 3)]


def test_every_kind_with_a_file_is_here() -> None:
    kinds = {type(value) for value in POSTERIORS.values()}
    public = {getattr(posterior, name) for name in posterior.__all__}
    assert kinds == {kind for kind in public if callable(getattr(kind, "sample", None))}


@pytest.mark.parametrize("name", POSTERIORS)
def test_it_is_a_posterior_whose_samples_are_functions_of_seed_and_number(name: str) -> None:
    q = POSTERIORS[name]
    assert isinstance(q, Posterior)
    one, again, other = q.sample(3, 5), q.sample(3, 5), q.sample(3, 6)
    assert one.keys() == q.mean.keys() == q.std.keys()
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert all(one[key].shape == q.mean[key].shape == q.std[key].shape for key in one)
    if name in GAUSSIANS:
        assert not torch.equal(one["weight"], other["weight"])


@pytest.mark.parametrize("name", RANDOM)
def test_seed_0_and_sample_0_are_the_defaults(name: str) -> None:
    q = POSTERIORS[name]
    for draw in (q.sample, *([q.perturbation] if name in GAUSSIANS else [])):
        for given, at in ((draw(), (0, 0)), (draw(3), (3, 0)), (draw(index=3), (0, 3))):
            assert all(torch.equal(given[key], value) for key, value in draw(*at).items())


@pytest.mark.parametrize("name", POSTERIORS)
def test_the_global_random_state_is_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    POSTERIORS[name].sample(1, 2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", POSTERIORS)
def test_moments_are_those_of_the_samples(name: str) -> None:
    q, count = POSTERIORS[name], 1_500
    draws = torch.stack([q.sample(9, k)["weight"] for k in range(count)])
    std = q.std["weight"]
    assert bool(((draws.mean(0) - q.mean["weight"]).abs() <= 5 * std / count**0.5 + 1e-6).all())
    torch.testing.assert_close(draws.std(0), std, rtol=0.15, atol=1e-6)


@pytest.mark.parametrize("name", POSTERIORS)
def test_temperature_scales_the_variance_and_the_mean_is_without(name: str) -> None:
    q = POSTERIORS[name]
    if name in GAUSSIANS:
        torch.testing.assert_close(q.at_temperature(4.0).std["weight"], 2.0 * q.std["weight"])
        torch.testing.assert_close(q.at_temperature(0.0).sample(1)["weight"], q.mean["weight"])
        assert isinstance(q.at_mean(), Point)
    torch.testing.assert_close(q.at_mean().mean["weight"], q.mean["weight"])
    with pytest.raises(ValueError, match=r"temperature=-1.0 must be >= 0"):
        q.at_temperature(-1.0)


@pytest.mark.parametrize("name", POSTERIORS)
def test_another_dtype_keeps_mean_and_std(name: str) -> None:
    q = POSTERIORS[name]
    wide = q.to(dtype=torch.float64)
    assert wide.mean["weight"].dtype == wide.sample(1)["weight"].dtype == torch.float64
    torch.testing.assert_close(wide.std["weight"].float(), q.std["weight"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", GAUSSIANS)
def test_the_density_is_normalized_by_its_covariance(name: str) -> None:
    """E log q(theta) is minus the entropy: at the mean, log q is half the number of weights higher."""
    q = POSTERIORS[name]
    draws = torch.stack([q.log_prob(q.sample(2, k)) for k in range(800)])
    assert (q.log_prob(q.mean) - draws.mean()).item() == pytest.approx(0.5 * 8, abs=0.4)


def test_files_are_read_and_predicted_with_by_another_process(tmp_path: Path) -> None:
    net = _network()
    torch.save(net.state_dict(), tmp_path / "net.pt")
    code = f"""
import torch
from torch import nn
from varlearn import posterior
from varlearn.prediction import predict
net = nn.Linear(3, 2)
net.load_state_dict(torch.load({str(tmp_path / "net.pt")!r}))
for name in {list(POSTERIORS)!r}:
    q = posterior.load({str(tmp_path)!r} + "/" + name, net)
    found = predict(net, q, [torch.ones(4, 3)], samples=5, seed=2, progress=False).log_probs
    torch.save(found, {str(tmp_path)!r} + "/" + name + ".out")
"""
    for name, q in POSTERIORS.items():
        posterior.save(q, tmp_path / name)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
    for name, q in POSTERIORS.items():
        found = predict(net, q, BATCHES, samples=5, seed=2, progress=False).log_probs
        assert torch.equal(torch.load(tmp_path / f"{name}.out"), found), name


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_flipped_bit_is_found(name: str, tmp_path: Path) -> None:
    path = tmp_path / "q.safetensors"
    posterior.save(POSTERIORS[name], path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(posterior.CorruptFileError):
        posterior.load(path)


@pytest.mark.parametrize("name", POSTERIORS)
@pytest.mark.parametrize("other", [nn.Linear(3, 4), nn.Sequential(nn.Linear(3, 2)), nn.Linear(3, 2, bias=False)])
def test_another_network_is_refused_by_name(name: str, other: nn.Module, tmp_path: Path) -> None:
    q, path = POSTERIORS[name], tmp_path / "q.safetensors"
    posterior.save(q, path)
    words = r"the posterior does not fit the model: .*'.*weight'|'bias'.*; use the architecture that the posterior was"
    with pytest.raises(ValueError, match=words):
        predict(other, q, BATCHES, samples=1, progress=False)
    with pytest.raises(ValueError, match=words):
        posterior.load(path, other)


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_mixture_of_different_networks_is_refused_by_name(name: str) -> None:
    other = Point({"weight": torch.zeros(4, 3), "bias": torch.zeros(4)})
    named = Point({"0.weight": torch.zeros(2, 3), "0.bias": torch.zeros(2)})
    with pytest.raises(ValueError, match=r"'weight'.* has shape .*; mix posteriors of one network"):
        Mixture([POSTERIORS[name], other])
    with pytest.raises(ValueError, match=r"must have the same names: .*weight.*; mix posteriors of one network"):
        Mixture([POSTERIORS[name], named])
    with pytest.raises(ValueError, match=r"components=\(\) is empty; a mixture needs at least one"):
        Mixture([])


@pytest.mark.parametrize("name", GAUSSIANS)
def test_a_posterior_that_was_fitted_to_the_linearized_network_is_predicted_with_it(name: str, tmp_path: Path) -> None:
    from dataclasses import replace

    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    q = POSTERIORS[name]
    q = replace(q, **{
        part: {f"0.{key}": value for key, value in getattr(q, part).items()}
        for part in ("mean", "hess", "ess", "weight_decay", "var", "deviations", "left", "right", "scale")
        if hasattr(q, part)
    })  # fmt: skip
    fitted = replace(q, origin=posterior.Origin(predict="linearized"))
    posterior.save(fitted, tmp_path / "q")
    found = predict(net, posterior.load(tmp_path / "q"), BATCHES, samples=4, progress=False).log_probs
    assert torch.equal(found, predict(net, Linearized(q), BATCHES, samples=4, progress=False).log_probs)
    assert not torch.equal(found, predict(net, q, BATCHES, samples=4, progress=False).log_probs)
