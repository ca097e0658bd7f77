"""Where the foreach engine cuts and joins parameters, and that it touches nothing else."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from tests.optim.engine.problems import member, new_group
from varlearn import IVON
from varlearn.core.noise import normal_
from varlearn.core.update import RULE
from varlearn.optim.engine import foreach
from varlearn.optim.engine.foreach import FlatChunk


def chunks(sizes: list[int], limit: int) -> list[FlatChunk]:
    return list(foreach._chunks(range(len(sizes)), sizes, limit))


def segments(sizes: list[int], limit: int) -> list[list[tuple[int, int, int]]]:
    """(position, start, stop), chunk by chunk."""
    return [
        [(k, each.start, each.start + size) for k, size in zip(each.positions, each.sizes, strict=True)]
        for each in chunks(sizes, limit)
    ]


def test_large_ones_are_cut_evenly_and_small_ones_are_joined() -> None:
    cut = [[(1, 0, 86)], [(1, 86, 170)], [(4, 0, 90)], [(0, 0, 3), (2, 0, 10)]]
    assert segments([3, 170, 10, 0, 90], limit=80) == cut


@pytest.mark.parametrize("sizes", [[], [1], [0], [7] * 40, [1_000, 3, 999], [121, 119, 10, 10, 41], [81]], ids=str)
def test_every_element_is_in_one_chunk(sizes: list[int]) -> None:
    limit = 80
    cut = segments(sizes, limit)
    seen = sorted((k, place) for chunk in cut for k, start, stop in chunk for place in range(start, stop))
    assert seen == [(k, place) for k, size in enumerate(sizes) for place in range(size)]
    assert all(0 < sum(stop - start for _, start, stop in chunk) <= 1.5 * limit + 1 for chunk in cut)
    assert all(start % 2 == 0 for chunk in cut for _, start, _ in chunk)  # noise comes in pairs


@pytest.mark.parametrize("limit", [4, 80, 1000])
def test_chunks_read_write_and_have_the_noise_of_their_elements(limit: int) -> None:
    shapes = [(3, 5), (7,), (), (0, 4), (12, 9), (1,)]
    tensors = [torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape) for shape in shapes]
    tensors[4] = tensors[4].t().contiguous().t()
    seen = [torch.full_like(tensor, -1.0) for tensor in tensors]
    noise = [torch.full_like(tensor, torch.nan) for tensor in tensors]
    for chunk in chunks([tensor.numel() for tensor in tensors], limit):
        own = [tensors[k] for k in chunk.positions]
        chunk.put([seen[k] for k in chunk.positions], chunk.join(own))
        normals = chunk.normals([100 + k for k in chunk.positions], chunk.join(own))
        chunk.put([noise[k] for k in chunk.positions], normals)
    assert all(map(torch.equal, seen, tensors))
    for k, found in enumerate(noise):
        expected = normal_(torch.empty(found.numel()), 100 + k)
        torch.testing.assert_close(found.as_strided((found.numel(),), (1,)), expected, rtol=0, atol=2e-6)


def test_parameters_of_one_group_dtype_and_kind_share_a_chunk() -> None:
    groups = [new_group(), new_group()]
    members = [
        member(torch.zeros(3, dtype=dtype), k, groups[k % 2])
        for k, dtype in enumerate([torch.float32, torch.float32, torch.float32, torch.float32, torch.float64] * 2)
    ]
    members[2].state["prior_mean"] = torch.zeros(3)
    plan = foreach.plan(members, RULE)
    found = [set(chunk.positions) for chunk in plan._chunks]
    assert sorted(map(sorted, found)) == [[0, 6, 8], [1, 3, 5, 7], [2], [4], [9]]


def test_a_chunk_fits_into_the_cache_and_a_device_takes_more() -> None:
    assert foreach._CPU_CHUNK * 4 * 3 <= 1 << 22  # three float32 temporaries in 4 MiB
    assert foreach._DEVICE_CHUNK > foreach._CPU_CHUNK


@pytest.mark.parametrize(
    ("param", "state", "is_supported"),
    [
        (torch.zeros(3), {}, True),
        (torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last), {}, True),
        (torch.zeros(3, dtype=torch.bfloat16), {}, True),
        (torch.zeros(3, 4), {"prior_mean": torch.zeros(3, 4)}, True),
        (torch.zeros(3, 4), {"prior_mean": torch.zeros(4, 3).t()}, False),
        (torch.zeros(3, 4), {"hess": torch.zeros(4, 3).t()}, False),
        (torch.zeros(3, 4)[:, ::2], {}, False),
    ],
)
def test_dense_parameters_in_one_memory_order_are_taken(
    param: Tensor, state: dict[str, Tensor], is_supported: bool
) -> None:
    each = member(param)
    each.state.update(state)
    assert foreach.supports(each, RULE) is is_supported


@pytest.mark.parametrize("limit", [4, 1 << 17])
def test_what_lies_between_parameters_is_not_written_to(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters that are parts of one block, as flattened models have them, with something else in between."""
    monkeypatch.setattr(foreach, "_CPU_CHUNK", limit)
    block = torch.arange(14.0)
    bounds = [(0, 3), (4, 8), (8, 12)]
    models = [[nn.Parameter(block[start:stop]) for start, stop in bounds]]
    models.append([nn.Parameter(param.detach().clone()) for param in models[0]])
    for params, use_foreach in zip(models, (True, False), strict=True):
        opt = IVON(params, lr=0.1, ess=100.0, seed=3, foreach=use_foreach, fused=False)
        for _ in range(2):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                torch.stack([param.square().sum() for param in params]).sum().backward()
            opt.step()
    for (start, stop), param in zip(bounds, models[1], strict=True):
        torch.testing.assert_close(block[start:stop], param.detach())
    assert block[[3, 12, 13]].tolist() == [3.0, 12.0, 13.0]


def test_large_and_small_ones_at_the_real_limit_are_the_loop_s() -> None:
    sizes = [foreach._CPU_CHUNK + 3, 5, foreach._CPU_CHUNK - 1, 2 * foreach._CPU_CHUNK - 7, 9]
    starts = [torch.randn(size) for size in sizes]
    outcomes = []
    for use_foreach in (True, False):
        params = [nn.Parameter(start.clone()) for start in starts]
        opt = IVON(params, lr=0.1, ess=100.0, seed=3, foreach=use_foreach, fused=False)
        with opt.sampled_params(train=True):
            for param in params:
                param.grad = param.detach().clone()
        opt.step()
        outcomes.append([tensor for p in params for tensor in (p.detach(), opt.state[p]["hess"])])
    for new, old in zip(*outcomes, strict=True):
        torch.testing.assert_close(new, old, rtol=2e-6, atol=2e-6)
    assert len(list(itertools.chain(chunks(sizes, foreach._CPU_CHUNK)))) == 6
