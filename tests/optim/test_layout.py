"""Small tensors side by side: how they come to lie so, and that nothing beside them is touched."""

import copy

import torch
from torch import Tensor, nn

from varlearn import IVON
from varlearn.optim.layout import Companions, Layout, side_by_side

SETTINGS = {"lr": 0.1, "ess": 100.0, "hess_init": 0.5, "seed": 3, "foreach": True}


def step(opt: IVON) -> None:
    with opt.sampled_params(train=True):
        opt.zero_grad()
        sum(param.square().sum() for group in opt.param_groups for param in group["params"]).backward()
    opt.step()


def are_side_by_side(opt: IVON) -> bool:
    params = [param for group in opt.param_groups for param in group["params"]]
    layout = Layout([param.shape for param in params])
    return all(layout.whole([opt.state[param][name] for param in params]) is not None for name in ("momentum", "hess"))


def model() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((4, 3), (2,), (6, 1))]


def test_the_state_is_side_by_side_also_after_loading_copying_and_growing() -> None:
    opt = IVON(model(), **SETTINGS)
    step(opt)
    assert are_side_by_side(opt)
    other = IVON(model(), **SETTINGS)
    saved = copy.deepcopy(opt.state_dict())
    for state in saved["state"].values():
        state["hess"] = state["hess"].clone()
    other.load_state_dict(saved)
    step(other)
    assert are_side_by_side(other)
    twin = copy.deepcopy(opt)
    step(twin)
    assert are_side_by_side(twin)
    opt.add_param_group({"params": [nn.Parameter(torch.ones(8))]})
    step(opt)
    assert are_side_by_side(opt)


def test_a_loaded_state_is_not_moved_under_its_owner() -> None:
    opt, other = IVON(model(), **SETTINGS), IVON(model(), **SETTINGS)
    step(opt)
    given = opt.state_dict()
    before = [state["hess"].clone() for state in given["state"].values()]
    other.load_state_dict(given)
    step(other)
    assert all(map(torch.equal, before, (state["hess"] for state in given["state"].values())))


def test_what_lies_between_parameters_is_not_written_to() -> None:
    """Parameters that are parts of one block, as flattened models have them, with something else in between."""
    block = torch.arange(12.0)
    bounds = [(0, 3), (4, 8), (8, 10)]  # the first is odd: where noise comes in pairs, a place is left after it
    params = [nn.Parameter(block[start:stop]) for start, stop in bounds]
    alone = [nn.Parameter(param.detach().clone()) for param in params]
    opts = [IVON(params, **SETTINGS), IVON(alone, **SETTINGS | {"foreach": False})]
    for opt in opts:
        step(opt)
    for (start, stop), param in zip(bounds, alone, strict=True):
        torch.testing.assert_close(block[start:stop], param.detach())
    assert block[3] == 3.0
    assert block[10:].tolist() == [10.0, 11.0]


def test_a_block_is_seen_only_where_there_is_one() -> None:
    layout = Layout([(2, 2), (6,)])
    first, second = side_by_side([torch.zeros(2, 2), torch.zeros(6)])
    whole = layout.whole([first, second])
    assert isinstance(whole, Tensor)
    whole.copy_(torch.arange(10.0))
    assert second.tolist() == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert layout.whole([first, second.clone()]) is None
    assert layout.whole([second[:4].view(2, 2), second]) is None
    assert Layout([(3,), (3,)]).whole(list(torch.zeros(6).split(3))) is None  # noise comes in pairs


def test_companions_are_made_once_also_of_a_part_of_a_tensor() -> None:
    companions, params = Companions(), [torch.zeros(6, 8)[:, ::2], torch.zeros(3)]
    first = companions.of(params, like=params)
    assert [each.stride() for each in first] == [param.stride() for param in params]
    assert all(old is new for old, new in zip(first, companions.of(params, like=params), strict=True))
    params[1] = torch.zeros(5)
    assert [each.shape for each in companions.of(params, like=params)] == [(6, 4), (5,)]
