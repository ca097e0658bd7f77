"""The noise of a shard is the shard of the noise, however a tensor is cut; one process stands for each rank in turn."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import Placement, _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore

from varlearn.core import shards
from varlearn.core.noise import normal_, normal_on_grid

MESH = (2, 3)
KEY = 99
CUTS = [
    (Replicate(), Replicate()),
    (Shard(0), Replicate()),
    (Replicate(), Shard(0)),
    (Replicate(), Shard(1)),
    (Shard(0), Shard(1)),
    (Shard(1), Shard(0)),
    (Shard(0), Shard(0)),
    (_StridedShard(0, split_factor=3), Shard(0)),
]
SHAPES = [(12, 4), (7, 5), (1, 6), (6, 1), (4, 3, 2), (0, 4)]


@pytest.fixture(params=range(6))
def rank(request: pytest.FixtureRequest) -> Iterator[int]:
    """This process as one of six that exchange nothing."""
    dist.init_process_group("fake", rank=request.param, world_size=6, store=FakeStore())
    yield request.param
    dist.destroy_process_group()


def cut_up(whole: Tensor, cuts: tuple[Placement, ...]) -> DTensor:
    return distribute_tensor(whole, init_device_mesh("cpu", MESH), cuts, src_data_rank=None)


@pytest.mark.usefixtures("rank")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_the_noise_of_a_shard_is_the_shard_of_the_noise(shape: tuple[int, ...], cuts: tuple[Placement, ...]) -> None:
    """PyTorch says which elements the rank has: it cuts up a tensor of element numbers."""
    numbers = cut_up(torch.arange(torch.Size(shape).numel(), dtype=torch.float64).view(shape), cuts)
    mine = numbers.to_local().long()
    whole = normal_(torch.empty(shape, dtype=torch.float64), KEY).view(-1)
    key, grid = shards.place(numbers, KEY)
    if grid is None:
        ours = normal_(torch.empty(mine.shape, dtype=torch.float64), key)
    else:
        ours = normal_on_grid(grid, key, torch.float64)
    assert torch.equal(ours, whole[mine])
    like = shards.normal_like(numbers, KEY, torch.float64)
    assert like.placements == numbers.placements  # type: ignore[attr-defined]
    assert torch.equal(shards.local(like), whole[mine])


@pytest.mark.usefixtures("rank")
def test_even_runs_take_the_fast_way() -> None:
    """Rows of even length that are cut between rows begin at an even element: no grid is needed."""
    assert shards.place(cut_up(torch.zeros(12, 4), (Shard(0), Replicate())), KEY)[1] is None
    assert shards.place(cut_up(torch.zeros(12, 6), (Replicate(), Shard(1))), KEY)[1] is not None


@pytest.mark.usefixtures("rank")
def test_numbers_go_by_the_memory_order_of_the_whole() -> None:
    """channels_last: the plain path numbers the elements as they lie in memory, and so do shards."""
    whole = torch.zeros(4, 2, 3, 3).to(memory_format=torch.channels_last)
    memory = normal_(torch.empty(whole.numel(), dtype=torch.float64), KEY)
    expected = memory.as_strided(whole.shape, whole.stride())
    key, grid = shards.place(cut_up(whole, (Shard(0), Replicate())), KEY)
    assert grid is not None
    mine = cut_up(expected, (Shard(0), Replicate())).to_local()
    assert torch.equal(normal_on_grid(grid, key, torch.float64), mine)


@pytest.mark.usefixtures("rank")
def test_values_are_placed_as_the_parameter_is() -> None:
    param = cut_up(torch.zeros(7, 5), (Shard(0), Shard(1)))
    value = torch.arange(35.0).view(7, 5)
    placed = shards.placed_like(param, value)
    assert shards.is_sharded(placed)
    assert placed.placements == param.placements
    assert torch.equal(placed.to_local(), cut_up(value, (Shard(0), Shard(1))).to_local())
    assert shards.placed_like(param, placed) is placed


def test_a_plain_tensor_is_its_own_part() -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    assert shards.local(weight) is weight
    assert shards.whole(weight) is weight
    assert shards.placed_like(weight, weight) is weight
    assert not shards.is_sharded(weight)
