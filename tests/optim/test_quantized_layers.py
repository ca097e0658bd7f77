"""Frozen integer weights, as quantized layers have them, may be in the parameter list and are left alone."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from varlearn import IVON
from varlearn.posterior import DiagGaussian
from varlearn.prediction import predict_regression

ENGINES: dict[str, dict[str, Any]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


class Quantized(nn.Module):
    """A frozen int8 layer with its scale, and a trainable one behind it."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.arange(-6, 6, dtype=torch.int8).view(4, 3)
        self.packed = nn.Parameter(weight, requires_grad=False)
        self.mask = nn.Parameter(torch.tensor([True, False, True, True]), requires_grad=False)
        self.scale = nn.Parameter(torch.full((4, 1), 0.1), requires_grad=False)
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(linear(x, self.packed * self.scale) * self.mask)


def train(model: Quantized, opt: IVON, steps: int = 5) -> None:
    for step in range(steps):
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
        with opt.sampled_params(train=True):
            opt.zero_grad()
            model(x).square().mean().backward()
        opt.step()


def build(trainable_only: bool = False, **kwargs: Any) -> tuple[Quantized, IVON]:
    torch.manual_seed(0)
    model = Quantized()
    params = [p for p in model.parameters() if p.requires_grad or not trainable_only]
    return model, IVON(params, lr=0.1, ess=100.0, betas=(0.9, 0.99), seed=0, **kwargs)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("memory", ["fast", "lean"])
def test_integer_weights_keep_their_values_and_have_no_state(engine: str, memory: str) -> None:
    model, opt = build(**ENGINES[engine], memory=memory)
    before = copy.deepcopy(model.state_dict())
    head = model.head.weight.detach().clone()
    train(model, opt)
    for name in ("packed", "mask", "scale"):
        assert torch.equal(model.state_dict()[name], before[name])
        assert model.get_parameter(name) not in opt.state
    assert not torch.equal(model.head.weight, head)
    with opt.sampled_params():
        assert torch.equal(model.packed, before["packed"])


def test_everything_that_reads_the_optimizer_passes_over_them() -> None:
    model, opt = build()
    train(model, opt)
    other, other_opt = build()
    other.load_state_dict(model.state_dict())
    other_opt.load_state_dict(opt.state_dict())
    train(model, opt)
    train(other, other_opt)
    assert torch.equal(model.head.weight, other.head.weight)
    assert float(opt.kl()) > 0.0
    assert opt.diagnostics()
    copy.deepcopy(opt)
    posterior = DiagGaussian.from_optimizer(model, opt)
    predicted = predict_regression(model, posterior, [torch.ones(2, 3)], samples=4, noise_variance=0.0)
    assert predicted.epistemic.shape[0] == 2
    assert bool((predicted.epistemic > 0.0).all())


def test_a_complex_parameter_is_still_refused() -> None:
    with pytest.raises(ValueError, match=r"torch\.complex64.*another optimizer"):
        IVON([nn.Parameter(torch.ones(1, dtype=torch.complex64), requires_grad=False)], lr=0.1, ess=1.0)
