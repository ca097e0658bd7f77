"""Memory order: what counts is where elements lie, not what the strides say."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from varlearn.core.memory_order import flat, in_order_of, is_dense, same_order


def addresses(tensor: Tensor) -> list[int]:
    """Where each element lies, counted from the first, in the order of the indices."""
    places = itertools.product(*(range(size) for size in tensor.shape))
    return [sum(i * stride for i, stride in zip(place, tensor.stride(), strict=True)) for place in places]


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Permuted, sliced and expanded tensors with dimensions of size 0 and 1."""
    shape = draw(st.lists(st.integers(0, 3), max_size=4))
    tensor = torch.arange(float(torch.Size(shape).numel())).view(shape)
    tensor = tensor.permute(draw(st.permutations(range(len(shape)))))
    if shape and draw(st.booleans()):
        tensor = tensor[..., :: draw(st.integers(1, 2))]
    if draw(st.booleans()):
        tensor = tensor.unsqueeze(draw(st.integers(0, tensor.dim())))
    if 1 in tensor.shape and draw(st.booleans()):  # a stride that means nothing
        strides = [
            draw(st.integers(1, 50)) if size == 1 else stride
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        ]
        tensor = tensor.as_strided(tensor.shape, strides)
    return tensor


@given(tensors())
def test_dense_is_a_block_without_gaps(tensor: Tensor) -> None:
    assert is_dense(tensor) == (sorted(addresses(tensor)) == list(range(tensor.numel())))


@given(tensors(), tensors())
def test_the_same_order_is_the_same_places(a: Tensor, b: Tensor) -> None:
    assert same_order(a, b) == (a.shape == b.shape and addresses(a) == addresses(b))
    assert same_order(a, a)


@given(tensors(), st.data())
def test_values_are_brought_into_an_order_and_copied_only_if_they_must(like: Tensor, data: st.DataObject) -> None:
    values = torch.randn(like.shape, dtype=torch.float64)
    values = values.permute(data.draw(st.permutations(range(values.dim())))).contiguous().view(like.shape)
    ordered = in_order_of(like, values)
    assert torch.equal(ordered, values)
    assert ordered.dtype == torch.float64
    assert (ordered is values) == same_order(like, values)
    if is_dense(like):
        assert same_order(like, ordered)


@given(tensors().filter(is_dense))
def test_flat_is_a_view_in_memory_order(tensor: Tensor) -> None:
    view = flat(tensor)
    assert view.shape == (tensor.numel(),)
    assert view.data_ptr() == tensor.data_ptr()
    expected = sorted(zip(addresses(tensor), tensor.flatten().tolist(), strict=True))
    assert view.tolist() == [value for _, value in expected]


@pytest.mark.parametrize("shape", [(8, 1, 3, 3), (1, 8, 1, 1), (4, 3, 1, 1), (1,), ()], ids=str)
def test_a_gradient_of_cudnn_s_strides_is_in_the_order_of_its_weight(shape: tuple[int, ...]) -> None:
    weight = torch.zeros(shape)
    grad = weight.to(memory_format=torch.channels_last) if len(shape) == 4 else weight.clone()
    same = len(shape) != 4 or shape[1] == 1 or shape[2:] == (1, 1)
    assert same_order(weight, grad) is same
