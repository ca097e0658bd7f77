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

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from tests.optim.torch_suite import (
    BASES,
    INFOS,
    ROWS,
    Problem,
    assert_equal,
    assert_unmoved,
    common,
    each_configuration,
    each_optimizer,
    engines,
    inputs,
    make,
    take_gradients,
)


def test_optim_infos_do_not_specify_global_cliquey_kwargs() -> None:
    for info in INFOS:
        for each in info.optim_inputs_func("cpu"):
            assert not {"foreach", "fused", "differentiable"} & set(each.kwargs)


@each_optimizer
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(each, id=each.optimizer_error_input.desc)
        for each in common.get_error_inputs_for_all_optims("cpu", torch.float32)
    ],
)
def test_errors(error: Any, cls: Any) -> None:
    given = error.optimizer_error_input
    params = given.params if given.params is not None else [nn.Parameter(torch.ones(1))]
    if issubclass(error.error_type, Warning):
        with pytest.warns(error.error_type, match=error.error_regex):
            cls(params, **BASES[cls] | given.kwargs)
    else:
        with pytest.raises(error.error_type, match=error.error_regex):
            cls(params, **BASES[cls] | given.kwargs)


@each_optimizer
@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters:UserWarning")
def test_a_parameter_that_is_listed_twice_is_trained_once(cls: Any) -> None:
    once, twice = (nn.Parameter(torch.ones(3)) for _ in range(2))
    opts = cls([("weight", once)], **BASES[cls]), cls([("weight", twice), ("tied", twice)], **BASES[cls])
    for param, opt in zip((once, twice), opts, strict=True):
        for _ in range(3):
            opt.zero_grad()
            ROWS[cls].step(opt, lambda param=param: param.square().sum())
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


@pytest.mark.parametrize(
    ("cls", "engine"), [(info.optim_cls, engine) for info in INFOS for engine in info.supported_impls]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_matches_forloop(cls: Any, engine: str, dtype: torch.dtype) -> None:
    """Covers foreach_matches_forloop, fused_matches_forloop and set_default_dtype_works_with_foreach."""
    found = []
    for flags in (engines(cls)["loop"], engines(cls)[engine]):
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
        take_gradients(opt, loss)
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
        problem.opt.step(lambda: take_gradients(problem.opt, 0.0 * problem.weight.sum()))
    assert_unmoved(problem.weight, before, kwargs)


@each_configuration
def test_optimizer_can_be_printed(kwargs: dict[str, Any]) -> None:
    assert repr(Problem(kwargs).opt).startswith(f"{kwargs['optimizer'].__name__} (")


@each_optimizer
def test_hooks(cls: Any) -> None:
    """Covers step_pre_hook, step_post_hook, step_all_hooks and the hooks of state_dict and load_state_dict."""
    problem = Problem(BASES[cls] | {"optimizer": cls})
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


@pytest.mark.parametrize("cls", [info.optim_cls for info in INFOS if info.supports_sparse])
def test_rosenbrock_sparse(cls: Any) -> None:
    """A sparse gradient trains as the same dense one does."""
    weights = []
    for sparse in (True, False):
        table = nn.Embedding(4, 2, sparse=sparse)
        nn.init.ones_(table.weight)
        opt = cls(table.parameters(), **BASES[cls])
        for _ in range(10):
            opt.zero_grad()
            ROWS[cls].step(opt, lambda table=table: table(torch.tensor([1, 1, 3])).square().sum())
        weights.append(table.weight.detach())
    assert torch.equal(*weights)


@each_optimizer
def test_fused_does_not_step_if_foundinf(cls: Any) -> None:
    problem = Problem(BASES[cls] | {"optimizer": cls} | ({"fused": True} if "fused" in engines(cls) else {}))
    problem.steps(1)
    before = problem.weight.detach().clone()
    problem.opt.grad_scale, problem.opt.found_inf = torch.tensor(1.0), torch.tensor(1.0)
    problem.steps(1)
    assert torch.equal(problem.weight, before)
