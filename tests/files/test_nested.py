"""State that goes through JSON and tensors comes back the same: values, types, order, bits, strides."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from varlearn import IVON
from varlearn.files.nested import pack, unpack

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
TENSORS = st.sampled_from(
    [
        torch.tensor(3.0),
        torch.zeros(0, 2),
        torch.tensor([True, False]),
        torch.arange(6, dtype=torch.int16).view(2, 3).t(),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.tensor([math.nan, math.inf, -0.0], dtype=torch.bfloat16),
    ]
)
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
NESTED = st.recursive(
    SCALARS | TENSORS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


def through_json(value: object) -> object:
    plain, tensors = pack(value)
    text = json.dumps(plain, sort_keys=True, allow_nan=False)  # as `sealed` writes it
    return unpack(json.loads(text), {name: tensor.contiguous().clone() for name, tensor in tensors.items()})


def same(first: object, second: object) -> bool:
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return (
            (first.dtype, first.shape, first.stride()) == (second.dtype, second.shape, second.stride())
            and first.contiguous().view(-1).view(torch.uint8).equal(second.contiguous().view(-1).view(torch.uint8))
            if first.numel()
            else first.shape == second.shape
        )
    if isinstance(first, dict) and isinstance(second, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, float) and isinstance(second, float):
        return first.hex() == second.hex()
    return first == second


@given(NESTED)
def test_everything_comes_back(value: object) -> None:
    assert same(through_json(value), value)


@pytest.mark.parametrize(
    "make",
    [
        lambda params: IVON(params, lr=0.1, ess=10.0, prior_mean="init", seed=3),
        lambda params: torch.optim.AdamW(params, lr=0.1, amsgrad=True),
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
        lambda params: torch.optim.LBFGS(params, lr=0.1),
        lambda params: torch.optim.Adagrad(params, lr=0.1),
    ],
)
def test_optimizer_states(make) -> None:
    net = torch.nn.Conv2d(3, 4, 3)
    optimizer = make(net.parameters())
    if not isinstance(optimizer, torch.optim.LBFGS):  # it needs gradients that can be viewed flat
        net.to(memory_format=torch.channels_last)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(torch.randn(2, 3, 5, 5)).square().mean()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    state = optimizer.state_dict()
    assert same(through_json(state), state)


def test_keys_of_one_name_stay_apart() -> None:
    value = {1: torch.ones(1), "1": torch.zeros(1), "a": {"b": torch.ones(2)}, "a/b": torch.zeros(2)}
    assert same(through_json(value), value)


def test_expanded_tensors_come_back_with_their_values() -> None:
    back = through_json({"x": torch.ones(1).expand(3)})
    assert torch.equal(back["x"], torch.ones(3))  # type: ignore[index]


def test_views_with_gaps_come_back_with_their_values() -> None:
    base = torch.arange(24.0).view(4, 6)
    for view in (base[:, ::2], base[:, 1:2], base.T[::3], base[::2].T):
        assert torch.equal(through_json({"x": view})["x"], view)  # type: ignore[index]


@pytest.mark.parametrize("stride", [[10**12, 1], [1, 10**12], [0, 1], [-3, 1], [2**70, 1]])
def test_strides_that_would_need_more_memory_are_passed_over(stride: list[int]) -> None:
    value = torch.ones(2, 3)
    back = unpack({"": "tensor", "name": "x", "stride": stride}, {"x": value})
    assert back.untyped_storage().nbytes() == 24
    assert torch.equal(back, value)


def test_what_cannot_be_saved_is_named() -> None:
    with pytest.raises(TypeError, match=r"optimizer/state/0 is a set; a checkpoint holds .* convert it"):
        pack({"optimizer": {"state": [{1, 2}]}})


def test_an_unknown_tag_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tag 'set' is unknown"):
        unpack({"": "set"}, {})
