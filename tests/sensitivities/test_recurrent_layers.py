"""Recurrent layers step by step against PyTorch's kernels."""

import pytest
import torch
from torch import nn

from varlearn.sensitivities.recurrent_layers import PlainRecurrence

KINDS = {
    "gru": nn.GRU,
    "lstm": nn.LSTM,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_states_are_those_of_the_kernels(
    kind: str, batch_first: bool, bidirectional: bool, bias: bool
) -> None:
    layer = KINDS[kind](3, 4, num_layers=2, batch_first=batch_first, bidirectional=bidirectional, bias=bias).double()
    x = torch.randn(5, 6, 3).double()
    expected = layer(x)
    with PlainRecurrence():
        found = layer(x)
        again = layer(x, found[1])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(again, layer(x, expected[1]), rtol=1e-12, atol=1e-12)


def test_what_it_does_not_know_goes_to_the_kernels() -> None:
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 2, 3), torch.tensor([4, 2]))
    layer = nn.GRU(3, 4)
    with PlainRecurrence():
        torch.testing.assert_close(layer(packed)[0].data, layer(packed)[0].data)
