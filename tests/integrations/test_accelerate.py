"""Loops of Accelerate beside plain PyTorch ones; one of them in two processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import set_seed
from torch import nn
from torch.nn.functional import cross_entropy

from examples import accelerate_loop
from tests.integrations.accelerate_loops import SETTINGS, Loop, flat, loader, net, run
from varlearn import IVON
from varlearn.integrations.accelerate import save_posterior_with_state
from varlearn.integrations.wrapped import posterior_of, variational
from varlearn.posterior import DiagGaussian, load
from varlearn.prediction import predict


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    """Accelerate keeps its state in singletons."""
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()  # type: ignore[call-arg]


def replay(accumulate: int = 1, clip: float | None = None, bf16: bool = False) -> tuple[nn.Module, IVON]:
    model = net()
    opt = IVON(model.parameters(), **SETTINGS)
    batches = list(loader())
    for start in range(0, len(batches), accumulate):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            for inputs, targets in batches[start : start + accumulate]:
                with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                    loss = cross_entropy(model(inputs), targets) / accumulate
                loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
    return model, opt


def assert_same(loop: Loop, plain: tuple[nn.Module, IVON], atol: float = 1e-6) -> None:
    model, opt = plain
    torch.testing.assert_close(flat(loop.model), flat(model), rtol=0, atol=atol)
    for a, b in zip(model.parameters(), loop.model.parameters(), strict=True):
        torch.testing.assert_close(opt.state[a]["hess"], loop.optimizer.state[b]["hess"], rtol=1e-4, atol=10 * atol)


def test_a_loop_with_one_more_line() -> None:
    loop = Loop()
    loop.epoch()
    assert not torch.equal(loop.seen[0], flat(net()))
    assert_same(loop, replay())


def test_accumulation_is_one_sample_and_the_mean_gradient() -> None:
    loop = Loop(gradient_accumulation_steps=2)
    loop.epoch()
    for first, second in zip(loop.seen[::2], loop.seen[1::2], strict=True):
        assert torch.equal(first, second)
    assert_same(loop, replay(accumulate=2))


def test_clipping() -> None:
    loop = Loop(clip=0.1, gradient_accumulation_steps=2)
    loop.epoch()
    assert_same(loop, replay(accumulate=2, clip=0.1))


def test_bf16() -> None:
    loop = Loop(mixed_precision="bf16")
    loop.epoch()
    assert_same(loop, replay(bf16=True), atol=1e-5)


def test_the_state_survives_prepare() -> None:
    model, opt = replay()
    before = {name: value for name, value in DiagGaussian.from_optimizer(model, opt).hess.items()}
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, opt)
    after = posterior_of(model, optimizer)
    assert all(torch.equal(value, after.hess[name]) for name, value in before.items())
    assert variational(optimizer) is opt


def test_resume_is_bitwise(tmp_path: Path) -> None:
    set_seed(5)
    whole = Loop(dropout=0.2)
    whole.epoch()
    whole.accelerator.save_state(str(tmp_path / "state"))
    whole.epoch()
    again = Loop(dropout=0.2)
    again.accelerator.load_state(str(tmp_path / "state"))
    again.epoch()
    assert torch.equal(whole.seen[4], again.seen[0])  # the noise
    assert torch.equal(flat(whole.model), flat(again.model))
    one, two = posterior_of(whole.model, whole.optimizer), posterior_of(again.model, again.optimizer)
    assert all(torch.equal(value, two.sample(1)[name]) for name, value in one.sample(1).items())


def test_save_state_writes_the_posterior(tmp_path: Path) -> None:
    loop = Loop()
    handle = save_posterior_with_state(loop.accelerator, loop.model, loop.optimizer)
    loop.epoch()
    loop.accelerator.save_state(str(tmp_path / "state"))
    read = load(tmp_path / "state" / "posterior.safetensors", net())
    expected = posterior_of(loop.model, loop.optimizer)
    assert all(torch.equal(value, read.sample(1)[name]) for name, value in expected.sample(1).items())
    handle.remove()
    loop.accelerator.save_state(str(tmp_path / "without"))
    assert not (tmp_path / "without" / "posterior.safetensors").exists()


def test_averaged_evaluation_of_prepared_objects() -> None:
    loop = Loop()
    loop.epoch()
    posterior = posterior_of(loop.model, loop.optimizer)
    got = predict(loop.model, posterior, loop.loader, samples=4)
    model, opt = replay()
    expected = predict(model, DiagGaussian.from_optimizer(model, opt), loader(), samples=4)
    torch.testing.assert_close(got.log_probs, expected.log_probs, rtol=1e-4, atol=1e-5)


def test_two_processes_draw_apart_and_stay_together(tmp_path: Path) -> None:
    one, two = run(tmp_path)
    assert torch.equal(one["weights"], two["weights"])
    assert torch.equal(one["hess"], two["hess"])
    noise = torch.stack([one["first"], two["first"]]) - flat(net())
    assert abs(torch.corrcoef(noise)[0, 1]) < 0.4  # 67 weights; equal noise would have 1


def test_the_example_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    accelerate_loop.main()
    assert "averaged" in capsys.readouterr().out
    assert (tmp_path / "state" / "posterior.safetensors").exists()
