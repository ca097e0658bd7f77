"""IVON among the tools that PyTorch users put between backward and step, and around the model.

Most tests take a first step from h = h0 and momentum 0 and compare the state with lines 3 to 5 of the paper, worked out
in float64 from the gradients and from where the weights were inside the blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.utils.checkpoint import checkpoint

from tests.optim.contract import TinyNet, assert_same, in_block, mse, snapshot, weights
from varlearn import IVON

ESS, DECAY, H0, BETA1, BETA2 = 100.0, 0.01, 0.5, 0.9, 0.99
KWARGS: dict[str, Any] = {
    "lr": 0.1, "ess": ESS, "weight_decay": DECAY, "hess_init": H0, "betas": (BETA1, BETA2), "seed": 1
}  # fmt: skip


def fresh(dtype: torch.dtype = torch.float32, **kwargs: Any) -> tuple[TinyNet, IVON]:
    model = TinyNet(dtype)
    return model, IVON(model.parameters(), **{**KWARGS, **kwargs})


class Samples:
    """Gradients and offsets theta - m of the samples of a first step, as seen from outside the optimizer."""

    def __init__(self, model: nn.Module) -> None:
        self.params = list(model.parameters())
        self.mean = [param.detach().double() for param in self.params]
        self.grads: list[list[Tensor]] = []
        self.offsets: list[list[Tensor]] = []

    def record(self, loss: Tensor) -> None:
        """Inside the block, before backward."""
        grads = torch.autograd.grad(loss, self.params, retain_graph=True)
        self.grads.append([grad.double() for grad in grads])
        self.offsets.append([p.detach().double() - mean for p, mean in zip(self.params, self.mean, strict=True)])

    def check(self, opt: IVON, factor: float = 1.0, hess_factor: float | None = None, rtol: float = 1e-4) -> None:
        """The state after the step is the paper's, the gradients having been multiplied by `factor` in between."""
        for index, param in enumerate(self.params):
            grads, offsets = ([sample[index] for sample in kept] for kept in (self.grads, self.offsets))
            ghat = torch.stack(grads).mean(0) * factor
            products = [grad * offset * ESS * (H0 + DECAY) for grad, offset in zip(grads, offsets, strict=True)]
            hhat = torch.stack(products).mean(0) * (factor if hess_factor is None else hess_factor)
            hess = BETA2 * H0 + (1 - BETA2) * hhat + 0.5 * (1 - BETA2) ** 2 * (H0 - hhat) ** 2 / (H0 + DECAY)
            momentum, h = opt.state[param]["momentum"].double(), opt.state[param]["hess"].double()
            scale = float(ghat.abs().max())
            torch.testing.assert_close(momentum, (1 - BETA1) * ghat, rtol=rtol, atol=rtol * scale)
            torch.testing.assert_close(h, hess, rtol=rtol, atol=rtol)


def norm(grads: Sequence[Tensor]) -> float:
    return float(torch.stack([grad.square().sum() for grad in grads]).sum().sqrt())


# Clipping


@pytest.mark.parametrize("count", [1, 3], ids=["one sample", "three samples"])
def test_clip_grad_norm_after_the_block_scales_ghat_and_hhat(count: int) -> None:
    model, opt = fresh()
    samples = Samples(model)
    for index in range(count):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            loss = mse(model, index)
            samples.record(loss)
            loss.backward()
    mean_grad = [torch.stack(grads).mean(0) for grads in zip(*samples.grads, strict=True)]
    total = clip_grad_norm_(model.parameters(), 0.1)
    assert float(total) == pytest.approx(norm(mean_grad), rel=1e-4)  # p.grad is the mean gradient
    opt.step()
    samples.check(opt, factor=0.1 / (norm(mean_grad) + 1e-6))


@pytest.mark.parametrize("count", [1, 3], ids=["one sample", "three samples"])
def test_max_grad_norm_scales_ghat_alone(count: int) -> None:
    model, opt = fresh(max_grad_norm=0.1)
    samples = Samples(model)
    for index in range(count):
        with opt.sampled_params(train=True):
            loss = mse(model, index)
            samples.record(loss)
            loss.backward()
    mean_grad = [torch.stack(grads).mean(0) for grads in zip(*samples.grads, strict=True)]
    opt.step()
    samples.check(opt, factor=0.1 / (norm(mean_grad) + 1e-6), hess_factor=1.0)


def test_max_grad_norm_in_float16_where_the_norm_overflows() -> None:
    weight = nn.Parameter(torch.zeros(10_000, dtype=torch.float16))
    opt = IVON([weight], max_grad_norm=1.0, **KWARGS)
    in_block(opt, lambda: (weight * 1000.0).sum())  # a gradient of norm 10^5, above float16's largest number
    opt.step()
    momentum = opt.state[weight]["momentum"]
    torch.testing.assert_close(momentum, torch.full_like(momentum, (1 - BETA1) * 0.01), rtol=1e-3, atol=0.0)


def test_clip_grad_value_after_the_block() -> None:
    model, opt = fresh()
    samples = Samples(model)
    with opt.sampled_params(train=True):
        loss = mse(model)
        samples.record(loss)
        loss.backward()
    clip_grad_value_(model.parameters(), 0.05)
    opt.step()
    samples.grads = [[grad.clamp(-0.05, 0.05) for grad in samples.grads[0]]]
    samples.check(opt)


def halve_in_place(param: nn.Parameter) -> None:
    assert param.grad is not None
    param.grad.mul_(0.5)


def halve_through_data(param: nn.Parameter) -> None:
    assert param.grad is not None
    param.grad.data.mul_(0.5)


def halve_by_assignment(param: nn.Parameter) -> None:
    assert param.grad is not None
    param.grad = param.grad * 0.5


@pytest.mark.parametrize("halve", [halve_in_place, halve_through_data, halve_by_assignment])
@pytest.mark.parametrize("count", [1, 2], ids=["one sample", "two samples"])
def test_gradients_scaled_by_hand_between_block_and_step(halve: Callable[[nn.Parameter], None], count: int) -> None:
    model, opt = fresh()
    samples = Samples(model)
    for index in range(count):
        with opt.sampled_params(train=True):
            loss = mse(model, index)
            samples.record(loss)
            loss.backward()
    for param in model.parameters():
        halve(param)
    opt.step()
    samples.check(opt, factor=0.5)


# Accumulation


@pytest.mark.parametrize("zero_grad", ["never", "before", "inside", "after", "after, in place", "everywhere"])
def test_blocks_are_averaged_wherever_zero_grad_stands(zero_grad: str) -> None:
    model, opt = fresh()
    samples = Samples(model)
    for index in range(4):
        if zero_grad in ("before", "everywhere"):
            opt.zero_grad()
        with opt.sampled_params(train=True):
            if zero_grad in ("inside", "everywhere"):
                opt.zero_grad()
            loss = mse(model, index)
            samples.record(loss)
            loss.backward()
        if zero_grad in ("after", "after, in place", "everywhere"):
            opt.zero_grad(set_to_none="place" not in zero_grad)
    opt.step()
    samples.check(opt)
    assert all(opt.state[param]["step"] == 1 for param in model.parameters())


@pytest.mark.parametrize("mode", [False, True], ids=["block", "train()"])
def test_micro_batches_of_one_sample_are_the_large_batch(mode: bool) -> None:
    """Four micro-batches with the loss divided by four, at one sample."""
    model, opt = fresh()
    samples = Samples(model)

    def micro_batches() -> None:
        total = torch.zeros(())
        for index in range(4):
            if mode:
                opt.train()
            total = total + mse(model, index) / 4
        samples.record(total)
        for index in range(4):
            (mse(model, index) / 4).backward()

    if mode:
        opt.zero_grad()
        micro_batches()
    else:
        with opt.sampled_params(train=True):
            opt.zero_grad()
            micro_batches()
    opt.step()
    samples.check(opt)


def test_a_loss_that_misses_a_parameter_in_one_sample_has_gradient_zero_there() -> None:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    opt = IVON([first, second], **KWARGS)
    in_block(opt, lambda: first.sum())
    in_block(opt, lambda: first.sum() + second.sum())
    opt.step()
    torch.testing.assert_close(opt.state[first]["momentum"], torch.full((2,), 0.1))
    torch.testing.assert_close(opt.state[second]["momentum"], torch.full((2,), 0.05))


# Mixed precision


@pytest.mark.parametrize("way", ["block", "two blocks", "mode"])
@pytest.mark.parametrize("unscale", [False, True], ids=["step alone", "unscale_"])
@pytest.mark.parametrize("approximation", ["reparam", "squared_gradient"])
def test_grad_scaler_is_invisible(way: str, unscale: bool, approximation: Any) -> None:
    """A scale that is a power of two changes no bit of a float32 run."""

    def run(scaler: torch.amp.GradScaler) -> dict[str, Any]:
        model, opt = fresh(hess_approx=approximation)
        for index in range(3):
            if way == "mode":
                opt.train()
                opt.zero_grad()
                scaler.scale(mse(model, index)).backward()
            else:
                for part in range(2 if way == "two blocks" else 1):
                    in_block(opt, lambda batch=10 * part + index: scaler.scale(mse(model, batch)))
            if unscale:
                scaler.unscale_(opt)
            scaler.step(opt)
            scaler.update()
        assert not any(hasattr(opt, name) for name in ("grad_scale", "found_inf"))
        return snapshot(opt)

    scaled = run(torch.amp.GradScaler("cpu", init_scale=1024.0))
    plain = run(torch.amp.GradScaler("cpu", enabled=False))
    if way == "two blocks":  # hhat follows the gradient by a ratio of norms
        for one, other in zip(scaled["state"], plain["state"], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    else:
        assert_same(scaled, plain)


@pytest.mark.parametrize("unscale", [False, True], ids=["step alone", "unscale_"])
def test_clipping_under_a_grad_scaler(unscale: bool) -> None:
    """unscale_ and clip_grad_norm_, or max_grad_norm without either."""
    model, opt = fresh(max_grad_norm=None if unscale else 0.1)
    samples = Samples(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    with opt.sampled_params(train=True):
        loss = mse(model)
        samples.record(loss)
        scaler.scale(loss).backward()
    if unscale:
        scaler.unscale_(opt)
        clip_grad_norm_(model.parameters(), 0.1)
    scaler.step(opt)
    factor = 0.1 / (norm(samples.grads[0]) + 1e-6)
    samples.check(opt, factor, hess_factor=factor if unscale else 1.0)


@pytest.mark.parametrize("count", [1, 2], ids=["one sample", "two samples"])
@pytest.mark.parametrize("unscale", [False, True], ids=["step alone", "unscale_"])
def test_an_overflow_drops_the_step_and_training_goes_on(unscale: bool, count: int) -> None:
    model, opt = fresh()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = snapshot(opt)["weights"]
    for index in range(count):
        in_block(opt, lambda index=index: scaler.scale(mse(model)) * (float("inf") if index == 0 else 1.0))
    if unscale:
        scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    assert scaler.get_scale() == 512.0
    assert opt.skipped_steps == 1
    assert_same(before, snapshot(opt)["weights"])
    assert all(state["step"] == 0 and not state["momentum"].any() for state in opt.state.values())
    in_block(opt, lambda: scaler.scale(mse(model)))
    scaler.step(opt)
    scaler.update()
    assert scaler.get_scale() == 512.0
    assert all(state["step"] == 1 for state in opt.state.values())
    assert all(bool(param.isfinite().all()) for param in model.parameters())


def test_autocast_trains_in_bfloat16() -> None:
    model, opt = fresh()
    before = mse(model).item()
    for _ in range(30):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = mse(model)
            loss.backward()
        opt.step()
    assert mse(model).item() < 0.8 * before
    assert {param.dtype for param in model.parameters()} == {torch.float32}


def test_samples_inside_one_autocast_region_are_seen() -> None:
    """Autocast keeps the weights it has cast until its region ends; a new sample must not meet the old ones."""
    model = nn.Linear(3, 2)
    opt = IVON(model.parameters(), **KWARGS)
    inputs = torch.ones(1, 3)
    with torch.autocast("cpu", torch.bfloat16):
        at_mean = model(inputs)
        outputs = []
        for _ in range(2):
            with opt.sampled_params():
                outputs.append(model(inputs))
        again = model(inputs)
    assert not torch.equal(outputs[0], at_mean)
    assert not torch.equal(outputs[0], outputs[1])
    assert torch.equal(again, at_mean)


# Parameters of every kind


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embed(tokens))


def test_tied_weights_are_one_parameter_with_one_noise() -> None:
    model = Tied()
    opt = IVON(model.parameters(), **KWARGS)
    samples = Samples(model)
    tokens = torch.tensor([0, 2, 2, 4])
    with opt.sampled_params(train=True):
        assert model.head.weight is model.embed.weight
        loss = nn.functional.cross_entropy(model(tokens), tokens)
        samples.record(loss)
        loss.backward()
    opt.step()
    assert len(opt.state) == 1
    samples.check(opt)


@pytest.mark.parametrize("path", [{"foreach": False, "fused": False}, {"foreach": True}, {"fused": True}], ids=str)
def test_zero_size_and_zero_dim_parameters(path: dict[str, bool]) -> None:
    empty, scalar, weight = (nn.Parameter(torch.ones(shape)) for shape in ((0, 3), (), (2,)))
    opt = IVON([empty, scalar, weight], **KWARGS, **path)
    for _ in range(2):  # two samples
        in_block(opt, lambda: (empty.sum() + scalar) ** 2 + (weight**2).sum())
    opt.step()
    assert [opt.state[param]["step"] for param in (empty, scalar, weight)] == [1, 1, 1]
    assert opt.state[empty]["hess"].shape == (0, 3)
    assert opt.state[scalar]["hess"].shape == ()
    assert scalar.item() < 1.0
    assert bool(torch.isfinite(opt.kl()))
    assert opt.diagnostics()[0].params == 3
    restored = copy.deepcopy(opt)
    restored.load_state_dict(opt.state_dict())
    assert_same(snapshot(opt), snapshot(restored))


@pytest.mark.parametrize("count", [1, 2], ids=["one sample", "two samples"])
@pytest.mark.parametrize("mode", [False, True], ids=["blocks", "train()"])
def test_sparse_embedding_gradients_are_what_dense_ones_are(count: int, mode: bool) -> None:
    start = torch.randn(6, 2)
    runs = []
    for sparse in (False, True):
        embed = nn.Embedding.from_pretrained(start.clone(), freeze=False, sparse=sparse)
        opt = IVON(embed.parameters(), **KWARGS)
        for step in range(3):
            for part in range(1 if mode else count):
                tokens = torch.tensor([step, step, 5 - part])
                if mode:
                    opt.train()
                    opt.zero_grad()
                    for _ in range(count):
                        (embed(tokens) ** 2).sum().backward()
                else:
                    in_block(opt, lambda embed=embed, tokens=tokens: (embed(tokens) ** 2).sum())
            opt.step()
        runs.append(snapshot(opt))
    assert_same(runs[0], runs[1])


def test_channels_last_stays_channels_last() -> None:
    def run(memory_format: torch.memory_format) -> nn.Conv2d:
        torch.manual_seed(0)
        conv = nn.Conv2d(2, 3, 2).to(memory_format=memory_format)
        opt = IVON(conv.parameters(), **KWARGS)
        for _ in range(3):
            in_block(opt, lambda: conv(torch.ones(1, 2, 4, 4).to(memory_format=memory_format)).square().mean())
            opt.step()
        assert conv.weight.is_contiguous(memory_format=memory_format)
        assert opt.state[conv.weight]["hess"].stride() == conv.weight.stride()
        return conv

    conv = run(torch.channels_last)
    assert not torch.equal(conv.weight, run(torch.contiguous_format).weight)  # noise goes in memory order


def test_a_model_turned_channels_last_while_training_resumes_bitwise() -> None:
    conv = nn.Conv2d(2, 3, 2)
    opt = IVON(conv.parameters(), **KWARGS)

    def run(conv: nn.Conv2d, opt: IVON, steps: int) -> None:
        for _ in range(steps):
            in_block(opt, lambda: conv(torch.ones(1, 2, 4, 4)).square().mean())
            opt.step()

    run(conv, opt, 2)
    conv.to(memory_format=torch.channels_last)
    run(conv, opt, 2)
    other = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
    other.load_state_dict(conv.state_dict())
    other_opt = IVON(other.parameters(), **KWARGS)
    other_opt.load_state_dict(opt.state_dict())
    run(conv, opt, 2)
    run(other, other_opt, 2)
    assert_same(snapshot(opt), snapshot(other_opt))


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
