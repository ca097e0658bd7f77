"""MC-dropout as a method: SGD, a network with dropout, predictions by masks."""

import torch
from torch import nn

from tests.methods.quadratic import FACTS, Quadratic
from varlearn.methods.mc_dropout import MCDropoutMethod, MCDropoutSettings
from varlearn.posterior import Point
from varlearn.prediction import Dropout, predict


def test_settings_reach_optimizer_and_network() -> None:
    method = MCDropoutMethod(MCDropoutSettings(lr=0.3, rate=0.25))
    net = method.prepare(nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 2)))
    (dropout,) = [module for module in net.modules() if isinstance(module, nn.Dropout)]
    assert dropout.p == 0.25
    optimizer = method.optimizer(net, FACTS)
    assert (type(optimizer), optimizer.param_groups[0]["lr"]) == (torch.optim.SGD, 0.3)
    assert MCDropoutSettings().rate == 0.05


def test_a_network_with_dropout_keeps_its_own() -> None:
    net = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.4), nn.ReLU(), nn.Linear(4, 2))
    assert MCDropoutMethod(MCDropoutSettings()).prepare(net) is net
    assert [module.p for module in net.modules() if isinstance(module, nn.Dropout)] == [0.4]


def test_the_point_is_predicted_by_masks_and_the_mean_without() -> None:
    training = Quadratic(method := MCDropoutMethod(MCDropoutSettings()))  # type: ignore[arg-type]
    assert isinstance(method.finish(training, []), Point)
    net = method.prepare(nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 2)))
    net.requires_grad_(False)
    point = Point({name: value.clone() for name, value in net.state_dict().items()})
    sampler, batches = method.predictor(point), [torch.ones(3, 1)]
    assert isinstance(sampler, Dropout)
    masks = predict(net, sampler, batches, samples=32, seed=1, keep_samples=True, progress=False)
    assert masks.sample_log_probs is not None
    assert len({row.item() for row in masks.sample_log_probs[:, 0, 0]}) > 16
    again = predict(net, sampler, batches, samples=32, seed=1, progress=False)
    assert torch.equal(masks.log_probs, again.log_probs)
    at_weights = predict(net, point, batches, progress=False).log_probs
    torch.testing.assert_close(at_weights, net.eval()(torch.ones(3, 1)).log_softmax(-1))
