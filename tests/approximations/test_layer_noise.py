"""Noise for each example: the same expected gradients as with samples of the weights, with less variance."""

import pytest
import torch
from torch import nn

from varlearn.approximations import layer_noise
from varlearn.optim import BBB


def gradients(kind: str, layer: nn.Module, inputs: torch.Tensor, passes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of a squared loss by mean and sigma of the weight, of each pass: (passes, P) each."""
    opt = BBB(layer.parameters(), ess=10.0, std_init=0.3, seed=1)
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    weight = layer.weight
    assert isinstance(weight, torch.Tensor)
    for number in range(passes):
        seen: dict[torch.Tensor, torch.Tensor] = {}
        opt.hand_in_hess = seen.update  # type: ignore[method-assign]
        opt.param_groups[0]["draws"] = number  # other noise for each pass, with no step between
        opt.zero_grad()
        mean = weight.detach().clone()
        if kind == "weights":
            with opt.sampled_params(train=True):
                eps = (weight.detach() - mean) / 0.3
                layer(inputs).square().mean().backward()
                assert weight.grad is not None
                by_sigma = weight.grad * eps
        else:
            with layer_noise(layer, opt, kind, key=number):  # type: ignore[arg-type]
                layer(inputs).square().mean().backward()
            by_sigma = seen[weight]
        assert weight.grad is not None
        found.append((weight.grad.flatten().clone(), by_sigma.flatten().clone()))
        opt._drop_samples()
    return torch.stack([one for one, _ in found]), torch.stack([one for _, one in found])


CASES = [
    ("local", nn.Linear(3, 2), (64, 3)),
    ("flipout", nn.Linear(3, 2), (64, 3)),
    ("flipout", nn.Linear(3, 2), (32, 2, 3)),
    ("flipout", nn.Conv2d(2, 2, 2, padding=1), (32, 2, 3, 3)),
]


@pytest.mark.parametrize(("kind", "layer", "shape"), CASES)
def test_gradients_have_the_same_mean_and_less_variance(kind: str, layer: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(shape)
    for one, other in zip(gradients(kind, layer, inputs, 300), gradients("weights", layer, inputs, 300), strict=True):
        error = (one.var(0) / 300 + other.var(0) / 300).sqrt()
        assert bool(((one.mean(0) - other.mean(0)).abs() < 5 * error).all())
        # flipout turns signs alone: the squares of the common noise stay
        assert one.var(0).mean() < (0.5 if kind == "local" else 1.0) * other.var(0).mean()


@pytest.mark.parametrize("kind", ["local", "flipout"])
def test_the_expected_gradient_of_sigma_is_that_of_the_closed_form(kind: str) -> None:
    """E (x w)^2 has the derivative 2 sigma E x^2 by sigma."""
    torch.manual_seed(0)
    inputs, layer = torch.randn(64, 3), nn.Linear(3, 1, bias=False)
    _, by_sigma = gradients(kind, layer, inputs, 400)
    expected = 2 * 0.3 * inputs.square().mean(0)
    assert bool(((by_sigma.mean(0) - expected).abs() < 5 * (by_sigma.var(0) / 400).sqrt()).all())


@pytest.mark.parametrize("kind", ["local", "flipout"])
def test_a_network_learns_with_it_and_its_layers_are_as_before(kind: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    inputs = torch.randn(64, 2)
    targets = (inputs[:, 0] > 0).long()
    opt = BBB(net.parameters(), lr=0.02, ess=64.0, seed=0)
    losses = []
    for step in range(60):
        with layer_noise(net, opt, kind, key=step):  # type: ignore[arg-type]
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(inputs), targets)
            loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all("forward" not in vars(module) for module in net.modules())


def test_an_unknown_kind_is_refused() -> None:
    net = nn.Linear(1, 1)
    with (
        pytest.raises(
            ValueError, match="kind='global' must be 'local' or 'flipout'; 'flipout' is for convolutions too"
        ),
        layer_noise(net, BBB(net.parameters(), ess=1.0), "global", key=0),
    ):  # type: ignore[arg-type]
        pass
