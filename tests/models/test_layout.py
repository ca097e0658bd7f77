"""The memory format of the image models."""

import torch
from torch import nn

from varlearn.models.layout import channels_last


def test_values_identity_and_other_weights_stay():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 2))
    parameters = dict(model.named_parameters())
    before = {name: parameter.clone() for name, parameter in parameters.items()}
    assert channels_last(model) is model
    assert model[0].weight.stride() == (27, 1, 9, 3)
    assert model[1].weight.stride() == (4, 1)
    for name, parameter in model.named_parameters():
        assert parameter is parameters[name]
        assert torch.equal(parameter, before[name])
