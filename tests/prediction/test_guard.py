import pytest
import torch
from torch import nn

from varlearn.prediction.guard import preserved


@pytest.fixture
def model() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 3))
    model[3].weight = model[0].weight
    model[1].eval()  # flags that differ between modules
    model.register_buffer("cache", torch.randn(2), persistent=False)
    return model


def spoil(model: nn.Module) -> None:
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.fill_(7)
    model.train(not model[1].training)
    torch.rand(5)


@pytest.mark.parametrize("error", [None, RuntimeError(), KeyboardInterrupt(), SystemExit(), torch.OutOfMemoryError()])
def test_the_model_comes_back_bitwise(model: nn.Module, state_of, error: BaseException | None) -> None:
    before, random, weight = state_of(model), torch.get_rng_state(), model[0].weight
    if error is None:
        with preserved(model):
            spoil(model)
    else:
        with pytest.raises(type(error)), preserved(model):  # noqa: PT012
            spoil(model)
            raise error
    assert state_of(model) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert model[0].weight is model[3].weight is weight


def test_restoring_within_the_block(model: nn.Module, state_of) -> None:
    before = state_of(model)
    with preserved(model) as restore:
        spoil(model)
        restore()
        assert state_of(model) == before
        spoil(model)
    assert state_of(model) == before


def test_bits_that_compare_unequal_or_equal_come_back(model: nn.Module, state_of) -> None:
    with torch.no_grad():
        model[0].bias[:] = torch.tensor([float("nan"), -0.0, float("inf")])
    before = state_of(model)
    with preserved(model):
        spoil(model)
    assert state_of(model) == before


class Interrupting(nn.Linear):
    """Ctrl-C at the first change of its train flag after it is armed."""

    armed = False

    @property
    def training(self) -> bool:
        return self.__dict__.get("flag", True)

    @training.setter
    def training(self, value: bool) -> None:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt
        self.__dict__["flag"] = value


def test_ctrl_c_while_restoring(state_of) -> None:
    model = nn.Sequential(Interrupting(2, 2), nn.Linear(2, 2))
    before = state_of(model)
    with pytest.raises(KeyboardInterrupt), preserved(model):  # noqa: PT012
        model.eval()
        with torch.no_grad():
            model[1].weight.zero_()
        model[0].armed = True
    assert state_of(model) == before
