"""Models of every kind: compiled, lazy, checkpointed, with BatchNorm, copied."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.optim.contract import TinyNet, assert_same, in_block, mse, snapshot, weights
from tests.optim.first_step import KWARGS, fresh
from varlearn import IVON

# Models of every kind


@pytest.mark.filterwarnings("ignore:`torch.jit")  # PyTorch's own, when its compiler is imported
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_model_sees_each_sample_and_is_not_compiled_again(backend: str) -> None:
    torch.compiler.reset()
    eager, eager_opt = fresh()
    model, opt = fresh()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    inputs, targets = torch.ones(8, 3), torch.zeros(8, 2)

    def loss(forward: Callable[[Tensor], Tensor]) -> Tensor:
        return nn.functional.mse_loss(forward(inputs), targets)

    in_block(opt, lambda: loss(compiled))
    opt.step()
    with torch.compiler.set_stance("fail_on_recompile"):
        for _ in range(4):
            in_block(opt, lambda: loss(compiled))
            opt.step()
    for _ in range(5):
        in_block(eager_opt, lambda: loss(eager))
        eager_opt.step()
    torch.testing.assert_close(weights(model), weights(eager), rtol=1e-4, atol=1e-5)
    with opt.sampled_params(), torch.no_grad():
        torch.testing.assert_close(compiled(inputs), model(inputs))


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_lazy_module_is_refused_until_it_has_values() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LazyLinear(2))
    opt = IVON(model.parameters(), **KWARGS)
    with pytest.raises(RuntimeError, match=r"meta or lazy.*materialize the model, or run one forward pass"):
        in_block(opt, lambda: model(torch.ones(1, 3)).sum())
    assert not any(param in opt.state for param in model.parameters())
    model(torch.ones(1, 3))
    in_block(opt, lambda: model(torch.ones(1, 3)).sum())
    opt.step()
    assert opt.state[model[1].weight]["step"] == 1


def test_a_meta_module_is_refused_until_it_has_values() -> None:
    model = nn.Linear(3, 2, device="meta")
    opt = IVON(model.parameters(), **KWARGS)
    with pytest.raises(RuntimeError, match=r"meta or lazy"):
        in_block(opt, lambda: model(torch.ones(1, 3, device="meta")).sum())
    assert not opt.is_sampled
    assert not any(param in opt.state for param in model.parameters())
    model = model.to_empty(device="cpu")
    model.reset_parameters()
    opt = IVON(model.parameters(), **KWARGS)
    in_block(opt, lambda: model(torch.ones(1, 3)).sum())
    opt.step()
    assert opt.state[model.weight]["step"] == 1


@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
def test_activation_checkpointing_changes_nothing(reentrant: bool) -> None:
    runs = []
    for checkpointed in (False, True):
        model, opt = fresh()
        inputs = torch.ones(2, 3, requires_grad=True)
        for _ in range(3):

            def loss(model: TinyNet = model, checkpointed: bool = checkpointed, inputs: Tensor = inputs) -> Tensor:
                hidden = checkpoint(model, inputs, use_reentrant=reentrant) if checkpointed else model(inputs)
                return hidden.square().mean()

            in_block(opt, loss)
            opt.step()
        runs.append(snapshot(opt))
    assert_same(runs[0], runs[1])


def test_batch_norm_buffers_are_left_to_the_model() -> None:
    """Sampling writes parameters alone; running statistics move only by forward passes in training mode."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    opt = IVON(model.parameters(), **KWARGS)
    inputs = torch.randn(16, 3)
    for _ in range(3):
        in_block(opt, lambda: model(inputs).square().mean())
        opt.step()
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    model.eval()
    with torch.no_grad():
        at_mean = model(inputs)
        for _ in range(3):
            with opt.sampled_params():
                assert not torch.equal(model(inputs), at_mean)
        assert torch.equal(model(inputs), at_mean)
    assert_same(dict(model.named_buffers()), buffers)


def test_recalibrated_batch_norm_has_the_statistics_of_the_mean() -> None:
    from varlearn.batchnorm import recalibrate_batchnorm

    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    opt = IVON(model.parameters(), **KWARGS)
    batches = [torch.randn(16, 3) for _ in range(4)]
    for inputs in batches:
        in_block(opt, lambda inputs=inputs: model(inputs).square().mean() + model[0].weight.square().sum())
        opt.step()
    recalibrate_batchnorm(model, batches)
    hidden = torch.stack([model[0](inputs) for inputs in batches]).detach()  # (batches, examples, channels)
    torch.testing.assert_close(model[1].running_mean, hidden.mean(dim=(0, 1)))
    torch.testing.assert_close(model[1].running_var, hidden.var(dim=1).mean(0), rtol=0.2, atol=1e-4)
    assert model.training


# Copies of the model


def test_a_model_that_has_been_sampled_copies_and_saves_as_any_other(tmp_path: Any) -> None:
    model, opt = fresh()
    in_block(opt, lambda: mse(model))
    opt.step()
    clone = copy.deepcopy(model)
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    for other in (clone, loaded):
        assert_same(weights(model), weights(other))
        torch.optim.SGD(other.parameters(), lr=0.1).zero_grad()
        mse(other).backward()  # the copies carry no watch of the first optimizer
    opt.zero_grad()
    before = snapshot(opt)
    opt.step()
    assert_same(before, snapshot(opt))
