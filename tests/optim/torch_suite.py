"""Our optimizers in a table of the kind that PyTorch keeps of its own (`common_optimizers`)."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract_rows import CONTRACTS, Contract
from varlearn import IVON, VAdamW

common = pytest.importorskip("torch.testing._internal.common_optimizers")
# The import forbids to set flags such as torch.backends.cudnn.benchmark, which other tests of this process do.
setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)

ROWS: dict[Any, Contract] = {row.optimizer: row for row in CONTRACTS}
BASE: dict[str, Any] = {"lr": 0.1, "ess": 1000.0, "betas": (0.9, 0.99), "seed": 0}
BASES: dict[Any, dict[str, Any]] = {cls: row.base for cls, row in ROWS.items()} | {
    IVON: BASE,
    VAdamW: {"lr": 0.1, "n": 1000, "batch_size": 10, "betas": (0.9, 0.99), "seed": 0},
}
ENGINES: dict[str, dict[str, Any]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def inputs(cls: Any) -> list[Any]:
    """Settings of a registered optimizer, without the flags that choose an engine."""
    settings: dict[str, dict[str, Any]] = {
        "default": {},
        "non-default lr": {"lr": 0.01},
        "tensor lr": {"lr": torch.tensor(0.1)},
        "weight decay": {"weight_decay": 0.01},
        "clipped": {"max_grad_norm": 10.0},
        "lean": {"memory": "lean"},
        "two samples": {"mc_samples": 2},
        "maximize": {"maximize": True},
    }
    if cls is IVON:
        settings |= {"squared gradient": {"hess_approx": "squared_gradient"}}
        settings |= {"clip radius": {"clip_radius": 0.1, "rescale_lr": False}}
    elif cls is not VAdamW:  # the promises of tests/optim/test_contract*.py hold for the other settings
        settings = {"default": {}, "maximize": {"maximize": True}}
    base = BASES[cls]
    return [common.OptimizerInput(params=None, kwargs=base | kwargs, desc=desc) for desc, kwargs in settings.items()]


def engines(cls: Any) -> dict[str, dict[str, Any]]:
    """The engines of an optimizer: name -> the flags that choose it."""
    return {name: ROWS[cls].paths[name] for name in ENGINES if name in ROWS[cls].paths}


INFOS = [
    common.OptimizerInfo(
        cls,
        optim_inputs_func=lambda device, dtype=None, cls=cls: inputs(cls),
        supported_impls=tuple(name for name in engines(cls) if name != "loop"),
        supports_sparse=cls in (IVON, VAdamW),
        supports_complex=False,
        step_requires_closure=True,
        supports_fused_on=("cpu",) if "fused" in engines(cls) else (),
    )
    for cls in BASES
]
CONFIGURATIONS = [
    pytest.param(each.kwargs | flags | {"optimizer": info.optim_cls}, id=f"{info.name}-{each.desc}-{engine}")
    for info in INFOS
    for each in info.optim_inputs_func("cpu")
    for engine, flags in engines(info.optim_cls).items()
]
each_configuration = pytest.mark.parametrize("kwargs", CONFIGURATIONS)


each_optimizer = pytest.mark.parametrize("cls", BASES)


def make(params: Any, optimizer: Any = IVON, **kwargs: Any) -> Any:
    # A tensor lr is one object in the table; a scheduler would change it for the later tests.
    return optimizer(params, **copy.deepcopy(kwargs))


def take_gradients(opt: Any, loss: Tensor) -> None:
    """What a closure of this optimizer does in place of `loss.backward()`."""
    ROWS[type(opt)].in_closure(opt, loss)


class Problem:
    """Least squares on a weight and a bias."""

    def __init__(self, kwargs: dict[str, Any], groups: Callable[[Tensor, Tensor], Any] | None = None) -> None:
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(10, 5, generator=generator))
        self.bias = nn.Parameter(torch.randn(10, generator=generator))
        self.input = torch.randn(5, generator=generator)
        self.kwargs = kwargs
        self.opt = make([self.weight, self.bias] if groups is None else groups(self.weight, self.bias), **kwargs)

    def closure(self) -> Tensor:
        self.opt.zero_grad()
        loss = (self.weight.mv(self.input) + self.bias).square().sum()
        take_gradients(self.opt, loss)
        return loss

    def steps(self, count: int = 5) -> None:
        for _ in range(count):
            self.opt.step(self.closure)

    def value(self) -> float:
        return float((self.weight.mv(self.input) + self.bias).square().sum().detach())

    def copied(self) -> "Problem":
        """Another problem at the same weights, with a fresh optimizer."""
        other = Problem(self.kwargs)
        with torch.no_grad():
            other.weight.copy_(self.weight)
            other.bias.copy_(self.bias)
        return other


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for ours, theirs in zip(one, other, strict=True):
            assert_equal(ours, theirs)
    elif isinstance(one, Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    else:
        assert one == other


def assert_unmoved(param: Tensor, before: Tensor, kwargs: dict[str, Any]) -> None:
    """With memory="lean" the mean comes back up to rounding."""
    tolerance = 1e-6 if kwargs.get("memory") == "lean" else 0.0
    torch.testing.assert_close(param.detach(), before, rtol=tolerance, atol=tolerance)
