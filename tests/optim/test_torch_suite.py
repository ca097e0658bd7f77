"""What PyTorch asks of its own optimizers, asked of ours.

PyTorch installs its tables of optimizers (`torch.testing._internal.common_optimizers`) but not the tests that read
them (`TestOptimRenewed`). The tests here check the same properties under the same names, with ours in such a table.

| tests of PyTorch that do not apply | why |
|---|---|
| complex, complex_2d | complex parameters are refused: a Gaussian over the real weights is meant |
| capturable, cudagraphs, a tensor `step` | the noise depends on a count on the host: no step can be replayed |
| differentiable | gradients through an update are not supported |
| step without a closure at given gradients | gradients must be of a sample; the tests here pass a closure |
| multi-GPU, large tensors, peak memory on CUDA | they need CUDA devices |
"""

import copy
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.optim.lr_scheduler import ReduceLROnPlateau

from varlearn import IVON
from varlearn.optim.vadamw import VAdamW

common = pytest.importorskip("torch.testing._internal.common_optimizers")
# The import forbids to set flags such as torch.backends.cudnn.benchmark, which other tests of this process do.
setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)

Optimizer = IVON | VAdamW

BASE: dict[str, Any] = {"lr": 0.1, "ess": 1000.0, "betas": (0.9, 0.99), "seed": 0}
BASES: dict[type[Optimizer], dict[str, Any]] = {
    IVON: BASE,
    VAdamW: {"lr": 0.1, "n": 1000, "batch_size": 10, "betas": (0.9, 0.99), "seed": 0},
}


def inputs(cls: type[Optimizer]) -> list[Any]:
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
        settings |= {"squared gradient": {"hess_approx": "squared_gradient"}, "clip radius": {"clip_radius": 0.1}}
    base = BASES[cls]
    return [common.OptimizerInput(params=None, kwargs=base | kwargs, desc=desc) for desc, kwargs in settings.items()]


INFOS = [
    common.OptimizerInfo(
        cls,
        optim_inputs_func=lambda device, dtype=None, cls=cls: inputs(cls),
        supported_impls=("foreach", "fused"),
        supports_sparse=True,
        supports_complex=False,
        step_requires_closure=True,
        supports_fused_on=("cpu",),
    )
    for cls in BASES
]
ENGINES: dict[str, dict[str, Any]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
CONFIGURATIONS = [
    pytest.param(each.kwargs | flags | {"optimizer": info.optim_cls}, id=f"{info.name}-{each.desc}-{engine}")
    for info in INFOS
    for each in info.optim_inputs_func("cpu")
    for engine, flags in ENGINES.items()
]
each_configuration = pytest.mark.parametrize("kwargs", CONFIGURATIONS)


def make(params: Any, optimizer: type[Optimizer] = IVON, **kwargs: Any) -> Optimizer:
    # A tensor lr is one object in the table; a scheduler would change it for the later tests.
    return optimizer(params, **copy.deepcopy(kwargs))


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
        loss.backward()
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


def test_optim_infos_do_not_specify_global_cliquey_kwargs() -> None:
    for info in INFOS:
        for each in info.optim_inputs_func("cpu"):
            assert not {"foreach", "fused", "differentiable"} & set(each.kwargs)


@pytest.mark.parametrize("cls", BASES)
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(each, id=each.optimizer_error_input.desc)
        for each in common.get_error_inputs_for_all_optims("cpu", torch.float32)
    ],
)
def test_errors(error: Any, cls: type[Optimizer]) -> None:
    given = error.optimizer_error_input
    params = given.params if given.params is not None else [nn.Parameter(torch.ones(1))]
    if issubclass(error.error_type, Warning):
        with pytest.warns(error.error_type, match=error.error_regex):
            cls(params, **BASES[cls] | given.kwargs)
    else:
        with pytest.raises(error.error_type, match=error.error_regex):
            cls(params, **BASES[cls] | given.kwargs)


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters:UserWarning")
def test_a_parameter_that_is_listed_twice_is_trained_once() -> None:
    once, twice = (nn.Parameter(torch.ones(3)) for _ in range(2))
    opts = IVON([("weight", once)], **BASE), IVON([("weight", twice), ("tied", twice)], **BASE)
    for param, opt in zip((once, twice), opts, strict=True):
        for _ in range(3):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                param.square().sum().backward()
            opt.step()
    assert_equal(opts[0].state_dict(), opts[1].state_dict())
    assert torch.equal(once, twice)


@each_configuration
@pytest.mark.parametrize("schedulers", [(), *INFOS[0].scheduler_inputs], ids=["constant", "scheduled"])
@pytest.mark.parametrize("contiguous", [True, False])
def test_goes_right_direction(kwargs: dict[str, Any], schedulers: Any, contiguous: bool) -> None:
    """Covers forloop_goes_right_direction, with and without schedulers, and tensor_lr."""
    problem = Problem(kwargs | {"lr": kwargs["lr"] * 0.1})
    if not contiguous:
        problem.weight = nn.Parameter(torch.randn(10, 5, 2)[..., 0])
        problem.opt = make([problem.weight, problem.bias], **problem.kwargs)
    used = [schedule(problem.opt) for schedule in schedulers]
    before = problem.value()
    for _ in range(12):
        problem.opt.step(problem.closure)
        for scheduler in used:
            scheduler.step(problem.value()) if isinstance(scheduler, ReduceLROnPlateau) else scheduler.step()
    assert (problem.value() > before) == kwargs.get("maximize", False)


@each_configuration
def test_param_groups_lr_and_weight_decay(kwargs: dict[str, Any]) -> None:
    problem = Problem(
        kwargs, lambda weight, bias: [{"params": [weight], "lr": 0.0}, {"params": [bias], "weight_decay": 0.5}]
    )
    weight, bias = problem.weight.detach().clone(), problem.bias.detach().clone()
    problem.steps()
    assert_unmoved(problem.weight, weight, kwargs)
    assert not torch.equal(problem.bias, bias)


@pytest.mark.parametrize("cls", BASES)
@pytest.mark.parametrize("engine", ["foreach", "fused"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_matches_forloop(cls: type[Optimizer], engine: str, dtype: torch.dtype) -> None:
    """Covers foreach_matches_forloop, fused_matches_forloop and set_default_dtype_works_with_foreach."""
    found = []
    for flags in (ENGINES["loop"], ENGINES[engine]):
        for kwargs in (each.kwargs | {"optimizer": cls} for each in inputs(cls)):
            torch.set_default_dtype(torch.float64 if dtype == torch.float64 else torch.float32)
            try:
                problem = Problem(kwargs | flags)
            finally:
                torch.set_default_dtype(torch.float32)
            problem.weight.data, problem.bias.data = problem.weight.data.to(dtype), problem.bias.data.to(dtype)
            problem.input = problem.input.to(dtype)
            problem.opt = make([problem.weight, problem.bias], **problem.kwargs)
            problem.steps()
            found.append(torch.cat([problem.weight.detach().flatten(), problem.bias.detach()]))
    half = len(found) // 2
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-9, torch.bfloat16: 5e-2}[dtype]
    for one, other in zip(found[:half], found[half:], strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@each_configuration
def test_mixed_dtypes_and_unused_parameters(kwargs: dict[str, Any]) -> None:
    """Covers mixed_device_dtype and step_is_noop_when_params_have_no_grad."""
    params = [nn.Parameter(torch.ones(3, dtype=dtype)) for dtype in (torch.float32, torch.float64, torch.bfloat16)]
    unused = nn.Parameter(torch.ones(2))
    opt = make([*params, unused], **kwargs)

    def closure() -> Tensor:
        opt.zero_grad()
        loss = torch.stack([param.double().square().sum() for param in params]).sum()
        loss.backward()
        return loss

    for _ in range(3):
        opt.step(closure)
    assert_unmoved(unused, torch.ones(2), kwargs)
    assert not any(torch.equal(param, torch.ones_like(param)) for param in params)


@each_configuration
def test_step_is_noop_when_params_have_no_grad(kwargs: dict[str, Any]) -> None:
    problem = Problem(kwargs)
    before = problem.weight.detach().clone()
    problem.opt.step(lambda: torch.tensor(1.0))
    problem.opt.step()
    assert torch.equal(problem.weight, before)


@each_configuration
def test_step_at_zero_grads_moves_by_weight_decay_alone(kwargs: dict[str, Any]) -> None:
    """PyTorch's step_is_noop_for_zero_grads, where weight decay is a prior: without it nothing moves."""
    problem = Problem(kwargs | {"weight_decay": 0.0})
    before = problem.weight.detach().clone()
    for _ in range(3):
        problem.opt.step(lambda: (0.0 * problem.weight.sum()).backward())
    assert_unmoved(problem.weight, before, kwargs)


@each_configuration
def test_optimizer_can_be_printed(kwargs: dict[str, Any]) -> None:
    assert repr(Problem(kwargs).opt).startswith(f"{kwargs['optimizer'].__name__} (")


@each_configuration
def test_state_dict_deterministic(kwargs: dict[str, Any]) -> None:
    problem = Problem(kwargs)
    problem.steps()
    other = problem.copied()
    saved = problem.opt.state_dict()
    given = copy.deepcopy(saved)
    other.opt.load_state_dict(given)
    assert_equal(saved, given)  # loading has not changed what it was given
    problem.steps()
    other.steps()
    assert torch.equal(problem.weight, other.weight)
    assert_equal(problem.opt.state_dict(), other.opt.state_dict())


@each_configuration
def test_can_load_older_state_dict(kwargs: dict[str, Any]) -> None:
    problem = Problem(kwargs)
    for key in ("maximize", "foreach", "fused", "memory", "nonfinite", "noise"):
        problem.steps(1)
        saved = problem.opt.state_dict()
        for group in saved["param_groups"]:
            del group[key]
        problem.opt.load_state_dict(saved)
        assert key in problem.opt.param_groups[0]
    problem.steps(1)


@each_configuration
def test_load_tensor_and_nontensor_step(kwargs: dict[str, Any]) -> None:
    """Step counts of PyTorch's optimizers are tensors; both kinds load."""
    problem, plain = Problem(kwargs), Problem(kwargs)
    for each in (problem, plain):
        each.steps()
    saved = problem.opt.state_dict()
    for state in saved["state"].values():
        state["step"] = torch.tensor(float(state["step"]))
    problem.opt.load_state_dict(saved)
    problem.steps()
    plain.steps()
    assert torch.equal(problem.weight, plain.weight)


@each_configuration
def test_can_load_from_to_named_state_dict(kwargs: dict[str, Any]) -> None:
    def groups(weight: Tensor, bias: Tensor) -> Any:
        return [("weight", weight), ("bias", bias)]

    for names in ((groups, None), (None, groups), (groups, groups)):
        saved, loaded = (Problem(kwargs, each) for each in names)
        saved.steps(2)
        loaded.weight.data.copy_(saved.weight)
        loaded.bias.data.copy_(saved.bias)
        loaded.opt.load_state_dict(saved.opt.state_dict())
        saved.steps(2)
        loaded.steps(2)
        assert torch.equal(saved.weight, loaded.weight)


@each_configuration
def test_save_load_equality_with_weights_only(kwargs: dict[str, Any]) -> None:
    problem = Problem(kwargs)
    problem.steps()
    file = io.BytesIO()
    torch.save(problem.opt.state_dict(), file)
    file.seek(0)
    assert_equal(torch.load(file, weights_only=True), problem.opt.state_dict())


@each_configuration
def test_deepcopy_optimizer_no_warning(kwargs: dict[str, Any]) -> None:
    problem = Problem(kwargs)
    problem.steps()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied = copy.deepcopy(problem.opt)
    assert_equal(copied.state_dict(), problem.opt.state_dict())
    public = [{name for name in vars(each) if not name.startswith("_")} for each in (problem.opt, copied)]
    assert public[0] == public[1]
    assert copied.defaults.keys() == problem.opt.defaults.keys()


@each_configuration
def test_non_empty_state(kwargs: dict[str, Any]) -> None:
    problem = Problem(kwargs)
    problem.steps(1)
    assert all(problem.opt.state[param] for param in (problem.weight, problem.bias))


def test_hooks() -> None:
    """Covers step_pre_hook, step_post_hook, step_all_hooks and the hooks of state_dict and load_state_dict."""
    problem = Problem(BASE)
    calls: list[str] = []
    opt = problem.opt
    handles = [
        opt.register_step_pre_hook(lambda *_: calls.append("before step")),
        opt.register_step_post_hook(lambda *_: calls.append("after step")),
        opt.register_state_dict_pre_hook(lambda *_: calls.append("before state_dict")),
        opt.register_state_dict_post_hook(lambda *_: calls.append("after state_dict")),
        opt.register_load_state_dict_pre_hook(lambda *_: calls.append("before load")),
        opt.register_load_state_dict_post_hook(lambda *_: calls.append("after load")),
    ]
    problem.steps(1)
    opt.load_state_dict(opt.state_dict())
    names = ["step", "state_dict", "load"]
    assert calls == [f"{when} {name}" for name in names for when in ("before", "after")]
    for handle in handles:
        handle.remove()
    problem.steps(1)
    assert len(calls) == 6


def test_rosenbrock_sparse() -> None:
    """A sparse gradient trains as the same dense one does."""
    weights = []
    for sparse in (True, False):
        table = nn.Embedding(4, 2, sparse=sparse)
        nn.init.ones_(table.weight)
        opt = IVON(table.parameters(), **BASE)
        for _ in range(10):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                table(torch.tensor([1, 1, 3])).square().sum().backward()
            opt.step()
        weights.append(table.weight.detach())
    assert torch.equal(*weights)


def test_fused_does_not_step_if_foundinf() -> None:
    problem = Problem(BASE | {"fused": True})
    problem.steps(1)
    before = problem.weight.detach().clone()
    problem.opt.grad_scale, problem.opt.found_inf = torch.tensor(1.0), torch.tensor(1.0)  # type: ignore[attr-defined]
    problem.steps(1)
    assert torch.equal(problem.weight, before)


# Distributed checkpoints


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_checkpoint_is_loaded_three_times_into_the_same_optimizer(tmp_path: Path) -> None:
    net = nn.Linear(3, 2)
    opt = IVON(net.parameters(), **BASE)

    def train() -> None:
        with opt.sampled_params(train=True):
            opt.zero_grad()
            net(torch.ones(1, 3)).square().sum().backward()
        opt.step()

    train()
    saved = get_optimizer_state_dict(net, opt)
    dcp.save({"optimizer": saved}, checkpoint_id=tmp_path, no_dist=True)
    groups = copy.deepcopy([{k: v for k, v in group.items() if k != "params"} for group in opt.param_groups])
    before = {name: value.detach().clone() for name, value in net.named_parameters()}
    for _ in range(3):
        state = {"optimizer": get_optimizer_state_dict(net, opt)}
        dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
        set_optimizer_state_dict(net, opt, state["optimizer"])
        net.load_state_dict(before)
        assert [{k: v for k, v in group.items() if k != "params"} for group in opt.param_groups] == groups
        train()
        after = net.weight.detach().clone()
    net.load_state_dict(before)
    state = {"optimizer": get_optimizer_state_dict(net, opt)}
    dcp.load(state, checkpoint_id=tmp_path, no_dist=True)
    set_optimizer_state_dict(net, opt, state["optimizer"])
    train()
    assert torch.equal(net.weight, after)


def test_a_resumed_run_saves_the_same_keys_as_an_uninterrupted_one() -> None:
    problem = Problem(BASE)
    problem.steps()
    resumed = problem.copied()
    resumed.opt.load_state_dict(problem.opt.state_dict())
    assert resumed.opt.state_dict()["param_groups"] == problem.opt.state_dict()["param_groups"]
    old = problem.opt.state_dict()
    old["param_groups"][0]["differentiable"] = False  # as earlier versions saved after a resume
    resumed.opt.load_state_dict(old)
    assert resumed.opt.state_dict()["param_groups"] == problem.opt.state_dict()["param_groups"]
