"""The loop's noise, in any memory order and with gaps."""

import torch

from tests.optim.engine.problems import member
from varlearn.core.memory_order import same_order
from varlearn.optim.engine import loop


def test_the_noise_of_the_loop_is_in_the_memory_order_of_the_parameter() -> None:
    param = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    (chunk,) = loop.whole_parameters([member(param)])
    noise = chunk.normals([7], param)
    assert same_order(noise, param)
    (flat,) = loop.whole_parameters([member(torch.zeros(120))])
    assert torch.equal(noise.as_strided((120,), (1,)), flat.normals([7], torch.zeros(120)))
