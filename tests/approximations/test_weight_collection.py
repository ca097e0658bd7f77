"""The snapshots of SWAG: moments, covariance of draws, BatchNorm, refusals."""

import pytest
import torch
from torch import nn

from varlearn import SWAG, Mixture
from varlearn.posterior import LowRankGaussian


def network(norm: type[nn.Module] = nn.LayerNorm) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), norm(2), nn.Linear(2, 1, bias=False))


def fill(net: nn.Module, swag: SWAG, count: int, seed: int = 0) -> list[torch.Tensor]:
    """Collect random weights; returns each snapshot as one vector."""
    generator, seen = torch.Generator().manual_seed(seed), []
    for _ in range(count):
        with torch.no_grad():
            for param in net.parameters():
                param.copy_(torch.randn(param.shape, generator=generator))
        swag.collect(net)
        seen.append(torch.cat([param.detach().flatten() for param in net.parameters()]).double())
    return seen


def flat(values: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.flatten().double() for value in values.values()])


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_moments_and_deviations_are_those_of_a_list_of_snapshots(count: int) -> None:
    net, swag = network(), SWAG(rank=4)
    seen = torch.stack(fill(net, swag, count))
    q = swag.posterior(net)
    assert isinstance(q, LowRankGaussian)
    assert q.rank == min(count, 4)
    torch.testing.assert_close(flat(q.mean), seen.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(flat(q.var), seen.var(0, correction=0), rtol=1e-5, atol=1e-6)
    expected = torch.stack([seen[k] - seen[: k + 1].mean(0) for k in range(count)])[-4:]
    found = torch.stack([torch.cat([d[k].flatten() for d in q.deviations.values()]) for k in range(q.rank)])
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_the_covariance_of_draws_has_the_half_the_rank_and_the_entries_between_tensors(count: int) -> None:
    """Traps: a scale of 1, low-rank numbers drawn per tensor, K - 1 of the rank that was asked for."""
    net, swag = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 2, bias=False)), SWAG(rank=20)
    seen = torch.stack(fill(net, swag, 3, seed=4))
    q = swag.posterior(net)
    draws = torch.stack([flat(q.sample(seed=7, index=k)) for k in range(count)])
    deviations = torch.stack([seen[k] - seen[: k + 1].mean(0) for k in range(3)])
    expected = 0.5 * (torch.diag(seen.var(0, correction=0)) + deviations.T @ deviations / 2.0)
    found = torch.cov(draws.T)
    spread = (expected.diagonal().outer(expected.diagonal()) + expected.square()).sqrt() / count**0.5
    assert bool(((found - expected).abs() < 5.0 * spread).all())
    assert expected[0, 3].abs() > 10 * spread[0, 3]  # between the first tensor and the last: seen if it is lost


def test_small_steps_far_from_zero_keep_their_variance() -> None:
    """The mean of squares less the square of the mean would be 0 or negative in float32."""
    net, swag = nn.Linear(1, 1, bias=False), SWAG()
    for value in (1000.0, 1000.01, 1000.02):
        nn.init.constant_(net.weight, value)
        swag.collect(net)
    values = torch.tensor([1000.0, 1000.01, 1000.02]).double()
    assert swag.posterior(net).var["weight"].item() == pytest.approx(values.var(correction=0).item(), rel=1e-3)


def test_batchnorm_fits_the_mean_and_the_model_is_as_before() -> None:
    net, swag, inputs = network(nn.BatchNorm1d), SWAG(), torch.randn(64, 2)
    fill(net, swag, 3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    q = swag.posterior(net, [(inputs, torch.zeros(64))])
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert q.fixed is not None
    hidden = inputs @ q.mean["0.weight"].T + q.mean["0.bias"]
    torch.testing.assert_close(q.fixed["1.running_mean"], hidden.mean(0))
    with pytest.warns(UserWarning, match=r"BatchNorm1d \(1\) keeps the statistics of the last weights.*pass training"):
        stale = swag.posterior(net).fixed
    assert stale is not None
    assert torch.equal(stale["1.running_mean"], before["1.running_mean"])


def test_frozen_parameters_go_along_and_do_not_vary() -> None:
    net, swag = network(), SWAG()
    net[0].requires_grad_(False)
    fill(net, swag, 2)
    q = swag.posterior(net)
    assert q.fixed is not None
    assert "0.weight" not in q.mean
    assert torch.equal(q.fixed["0.weight"], net[0].weight)


def test_several_collections_are_a_mixture() -> None:
    posteriors = []
    for seed in range(3):
        net, swag = network(), SWAG()
        fill(net, swag, 3, seed)
        posteriors.append(swag.posterior(net))
    multi = Mixture(posteriors)
    torch.testing.assert_close(multi.mean["0.weight"], torch.stack([q.mean["0.weight"] for q in posteriors]).mean(0))


def test_a_collection_goes_on_where_it_was_saved() -> None:
    net, straight, saved = network(), SWAG(rank=3), SWAG(rank=3)
    fill(net, straight, 7)
    fill(net, saved, 7)
    resumed = SWAG(rank=3)
    resumed.load_state_dict(saved.state_dict())
    fill(net, straight, 2, seed=5)
    fill(net, resumed, 2, seed=5)
    assert torch.equal(resumed.posterior(net).sample(1)["0.weight"], straight.posterior(net).sample(1)["0.weight"])
    with pytest.raises(ValueError, match=r"rank=4 must be that of the saved collection, 3; use SWAG\(3\)"):
        SWAG(rank=4).load_state_dict(saved.state_dict())


def test_wrong_use_is_refused_with_its_cure() -> None:
    net, swag = network(), SWAG()
    with pytest.raises(ValueError, match=r"0 snapshot\(s\) collected, at least 2 are needed; call collect\(model\)"):
        swag.posterior(net)
    fill(net, swag, 1)
    with pytest.raises(ValueError, match=r"1 snapshot\(s\) collected, at least 2 are needed"):
        swag.posterior(net)
    fill(net, swag, 1)
    with pytest.raises(ValueError, match=r"parameter '.*' has shape .* here and .* in the snapshots; collect one net"):
        swag.collect(nn.Linear(3, 2))
    assert swag.count == 2
    with pytest.raises(ValueError, match=r"in the snapshots; collect one network"):
        swag.posterior(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1, bias=False)))
    with pytest.raises(ValueError, match=r"rank=1 must be a whole number >= 2; 20 is the paper's"):
        SWAG(rank=1)
    with pytest.raises(ValueError, match=r"covariance='full' must be 'low_rank' or 'diagonal'"):
        swag.posterior(net, covariance="full")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"no trainable parameter to collect"):
        SWAG().collect(nn.ReLU())
