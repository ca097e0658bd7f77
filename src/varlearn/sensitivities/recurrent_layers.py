"""Recurrent layers as plain operations: `nn.GRU`, `nn.LSTM` and `nn.RNN` call kernels that vmap cannot batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

State = tuple[Tensor, ...]
"""The state of one layer in one direction: (h,), for an LSTM (h, c); shape (B, hidden) each."""
Cell = Callable[[Tensor, Tensor, State], State]
"""From W x + b, W_h h + b_h and the state to the next state."""

_WITHOUT_BIAS, _WITH_BIAS = 2, 4  # tensors per layer and direction


class PlainRecurrence(TorchFunctionMode):
    """Within this context, recurrent layers are computed step by step with operations that vmap, vjp and jvp know.

    The results are those of the kernels up to rounding. Packed sequences and LSTMs with projections go to the kernels.

    >>> layer, x = torch.nn.GRU(2, 3, batch_first=True), torch.ones(1, 4, 2)
    >>> with PlainRecurrence():
    ...     plain, _ = layer(x)
    >>> torch.allclose(plain, layer(x)[0], atol=1e-6)
    True
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Replace the calls that the layers make."""
        name = getattr(func, "__name__", "")
        if name in _CELLS and len(args) == 9 and isinstance(args[3], bool) and _fits(args):
            return _layers(_CELLS[name], *args)
        return func(*args, **(kwargs or {}))


def _fits(args: Sequence[Any]) -> bool:
    _, _, weights, has_biases, count, dropout, training, bidirectional, _ = args
    known = len(weights) == (_WITH_BIAS if has_biases else _WITHOUT_BIAS) * count * (2 if bidirectional else 1)
    return known and not (dropout and training)


def _layers(
    cell: Cell,
    inputs: Tensor,
    first: Tensor | State,
    weights: Sequence[Tensor],
    has_biases: bool,
    count: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """All layers and directions: the outputs of the last layer, then the final states, as the kernel returns them."""
    starts = (first,) if isinstance(first, Tensor) else tuple(first)  # (layers * directions, B, hidden) each
    x = inputs.transpose(0, 1) if batch_first else inputs  # (T, B, inputs)
    size = _WITH_BIAS if has_biases else _WITHOUT_BIAS
    directions = 2 if bidirectional else 1
    ends: list[State] = []
    for layer in range(count):
        found = []
        for direction in range(directions):
            place = layer * directions + direction
            outputs, end = _one_way(
                cell, x, tuple(s[place] for s in starts), weights[place * size : (place + 1) * size], direction == 1
            )
            found.append(outputs)
            ends.append(end)
        x = torch.cat(found, -1)
    finals = tuple(torch.stack(parts) for parts in zip(*ends, strict=True))
    return (x.transpose(0, 1) if batch_first else x), *finals


def _one_way(cell: Cell, x: Tensor, state: State, weights: Sequence[Tensor], backwards: bool) -> tuple[Tensor, State]:
    """One layer in one direction: h after every step, (T, B, hidden), and the last state."""
    of_input, of_state, *biases = weights
    bias_in, bias_state = biases or (None, None)
    steps = linear(x, of_input, bias_in).unbind(0)
    outputs: list[Tensor] = []
    for step in reversed(steps) if backwards else steps:
        state = cell(step, linear(state[0], of_state, bias_state), state)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs), state


def _gru(step: Tensor, hidden: Tensor, state: State) -> State:
    reset_x, update_x, new_x = step.chunk(3, -1)
    reset_h, update_h, new_h = hidden.chunk(3, -1)
    update = torch.sigmoid(update_x + update_h)
    new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
    return (new + update * (state[0] - new),)


def _lstm(step: Tensor, hidden: Tensor, state: State) -> State:
    into, forget, new, out = (step + hidden).chunk(4, -1)
    kept = torch.sigmoid(forget) * state[1] + torch.sigmoid(into) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(kept), kept


def _rnn_tanh(step: Tensor, hidden: Tensor, state: State) -> State:
    return (torch.tanh(step + hidden),)


def _rnn_relu(step: Tensor, hidden: Tensor, state: State) -> State:
    return (torch.relu(step + hidden),)


_CELLS: dict[str, Cell] = {"gru": _gru, "lstm": _lstm, "rnn_tanh": _rnn_tanh, "rnn_relu": _rnn_relu}
