import pytest
import torch
from torch import nn

from varlearn.posterior import Point, check_fits
from varlearn.posterior.binding import full_state, model_tensors, unwrap, write_into


class Tied(nn.Module):
    """Tied embedding and head, a frozen scale, a BatchNorm, a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)
        self.register_buffer("cache", torch.zeros(2), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.scale * self.head(self.norm(self.embed(tokens)))


def everything(model: nn.Module) -> Point:
    params, buffers, tied = model_tensors(model)
    return Point(
        {name: value.detach().clone() for name, value in params.items()},
        fixed={name: value.clone() for name, value in buffers.items()},
        tied=tied,
    )


def test_each_tensor_once_under_its_first_name() -> None:
    params, buffers, tied = model_tensors(Tied())
    assert list(params) == ["scale", "embed.weight", "norm.weight", "norm.bias"]
    assert sorted(buffers) == ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var"]
    assert tied == {"head.weight": "embed.weight"}


def test_a_module_used_twice_is_named_once() -> None:
    block = nn.BatchNorm1d(2)
    params, buffers, tied = model_tensors(nn.Sequential(block, block))
    assert set(params) == {"0.weight", "0.bias"}
    assert set(buffers) == {"0.running_mean", "0.running_var", "0.num_batches_tracked"}
    assert tied["1.running_mean"] == "0.running_mean"


def test_wrappers_do_not_change_names() -> None:
    net = nn.Linear(2, 1)
    compiled = torch.compile(net, backend="eager")
    assert unwrap(compiled) is net
    assert unwrap(nn.DataParallel(compiled)) is net
    check_fits(everything(net), compiled)


def test_a_full_state_loads_strictly() -> None:
    source, target = Tied(), Tied()
    point = everything(source)
    target.load_state_dict(full_state(point.mean, point.fixed, point.tied), strict=True)
    assert torch.equal(target.head.weight, source.embed.weight)


def test_faults_are_named_all_at_once() -> None:
    point = Point(
        {"embed.weight": torch.zeros(4, 3), "scale": torch.zeros(1), "ghost": torch.zeros(1)},
        fixed={"norm.running_mean": torch.zeros(3)},
    )
    with pytest.raises(ValueError, match="does not fit") as caught:
        check_fits(point, Tied())
    message = str(caught.value)
    assert "missing 'norm.weight', 'norm.bias', 'norm.running_var', 'norm.num_batches_tracked'" in message
    assert "unexpected 'ghost'" in message
    assert "'embed.weight' is (4, 3) in the posterior and (5, 3) in the model" in message
    assert message.endswith("use the architecture that the posterior was trained with")


def test_long_lists_of_names_are_cut() -> None:
    point = Point({f"w{number:02}": torch.zeros(1) for number in range(20)})
    with pytest.raises(ValueError, match="'w07' and 12 more"):
        check_fits(point, nn.Linear(1, 1))


def test_without_fixed_tensors_the_model_keeps_its_own() -> None:
    model = Tied()
    learned = {name: p.detach() for name, p in model_tensors(model).params.items() if p.requires_grad}
    check_fits(Point(learned), model)  # no word about `scale` and the buffers
    with pytest.raises(ValueError, match="missing 'norm.bias'"):
        check_fits(Point({name: value for name, value in learned.items() if name != "norm.bias"}), model)


def test_an_untied_model_is_refused_for_a_tied_posterior() -> None:
    model = Tied()
    point = everything(model)
    model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
    with pytest.raises(ValueError, match="missing 'head.weight'"):
        check_fits(point, model)


def test_writing_keeps_identity_ties_and_memory_format() -> None:
    model = Tied()
    weight, pointer = model.embed.weight, model.embed.weight.data_ptr()
    write_into(model, {"embed.weight": torch.full((5, 3), 2.0), "norm.num_batches_tracked": torch.tensor(7)})
    assert model.embed.weight is weight
    assert model.head.weight is weight
    assert weight.data_ptr() == pointer
    assert weight.requires_grad
    assert model.norm.num_batches_tracked.item() == 7
    conv = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    write_into(conv, {"weight": torch.randn(4, 3, 2, 2)})
    assert conv.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("count", "end"), [(8, "'w7'; use"), (9, "'w7' and 1 more; use")])
def test_eight_names_are_listed(count: int, end: str) -> None:
    with pytest.raises(ValueError, match=end):
        check_fits(Point({"weight": torch.zeros(1, 1)} | {f"w{k}": torch.zeros(1) for k in range(count)}), LINEAR)


LINEAR = nn.Linear(1, 1, bias=False)
