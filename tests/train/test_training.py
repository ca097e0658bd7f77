"""One step of every method against the loop that a user would write."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.train.tiny import load, tiny_run
from varlearn.methods import Facts
from varlearn.posterior import DiagGaussian, Point
from varlearn.train.build import build_batches, build_method, build_model, build_parts, compile_in_place
from varlearn.train.config import Data, Model, Run
from varlearn.train.processes import Processes
from varlearn.train.training import Training

ALONE = Processes(0, 1, torch.device("cpu"))


def training_of(run: Run, seed: int = 0) -> Training:
    torch.manual_seed(seed)
    return Training(build_parts(run, load(run.data.name, "train"), ALONE), ALONE)


def advance(training: Training, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        losses.append(training.gradients().item())
        training.update()
    return losses


def weights(training: Training) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(training.model.parameters()).detach()


@pytest.mark.parametrize("method", ["ivon", "adamw", "sgd"])
def test_the_steps_are_those_of_a_loop_by_hand(method: str) -> None:
    run = tiny_run(method, schedule="constant")
    training = training_of(run)
    losses = advance(training, 8)

    examples = load("blobs", "train")
    torch.manual_seed(0)
    model = build_model(run, examples)
    optimizer = build_method(run).optimizer(model, training.facts)
    batches = build_batches(run, examples, train=True)
    by_hand = []
    for inputs, targets in [*batches.epoch(0), *batches.epoch(1)][:8]:
        optimizer.zero_grad()
        if method == "ivon":
            with optimizer.sampled_params(train=True):  # type: ignore[attr-defined]
                loss = cross_entropy(model(inputs), targets)
                loss.backward()
        else:
            loss = cross_entropy(model(inputs), targets)
            loss.backward()
        optimizer.step()
        by_hand.append(loss.item())
    assert losses == by_hand
    assert torch.equal(weights(training), torch.nn.utils.parameters_to_vector(model.parameters()))


@pytest.mark.parametrize("method", ["adamw", "sgd"])
def test_micro_batches_are_one_large_batch(method: str) -> None:
    small = tiny_run(method, accumulate=2)
    small = replace(small, data=replace(small.data, batch_size=8))
    large = tiny_run(method, accumulate=1)
    one, two = training_of(small), training_of(large)
    assert one.facts == two.facts
    advance(one, 7)
    advance(two, 7)
    torch.testing.assert_close(weights(one), weights(two), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("accumulate", "samples", "draws"), [(1, 1, 1), (3, 1, 3), (1, 4, 4), (2, 3, 6)])
def test_every_micro_batch_and_sample_of_ivon_is_a_draw(accumulate: int, samples: int, draws: int) -> None:
    run = tiny_run("ivon", accumulate=accumulate)
    training = training_of(replace(run, optim=replace(run.optim, samples=samples)))
    advance(training, 2)
    assert training.optimizer.param_groups[0]["draws"] == 2 * draws


def test_accumulation_crosses_the_border_of_epochs() -> None:
    training = training_of(tiny_run("sgd", accumulate=4, epochs=3))  # 6 batches make an epoch
    assert training.facts.steps == 18 // 4
    ends = []
    for _ in range(4):
        advance(training, 1)
        ends.append(training.ends_epoch())
    assert ends == [False, True, True, False]
    assert training.epoch == pytest.approx(16 / 6)


@pytest.mark.parametrize("method", ["adamw", "sgd"])
def test_the_norm_of_the_gradient_is_clipped(method: str) -> None:
    training = training_of(tiny_run(method, max_grad_norm=1e-3))
    training.gradients()
    training.update()
    squares = [param.grad.square().sum() for param in training.model.parameters() if param.grad is not None]
    assert torch.stack(squares).sum().sqrt().item() == pytest.approx(1e-3, rel=1e-3)


def test_ivon_clips_its_own_gradient() -> None:
    training = training_of(tiny_run("ivon", max_grad_norm=1e-3))
    advance(training, 1)
    momenta = [training.optimizer.state[param]["momentum"] for param in training.model.parameters()]
    norm = torch.stack([momentum.square().sum() for momentum in momenta]).sum().sqrt().item()
    assert norm == pytest.approx((1 - 0.9) * 1e-3, rel=1e-2)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("method", ["ivon", "adamw"])
def test_low_precision_is_near_to_full(method: str, precision: str) -> None:
    low, full = training_of(tiny_run(method, precision=precision)), training_of(tiny_run(method))
    low.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled=precision == "fp16")  # small: no overflow
    losses, exact = advance(low, 5), advance(full, 5)
    assert losses != exact
    assert losses == pytest.approx(exact, rel=0.05)
    assert low.scaler.is_enabled() == (precision == "fp16")
    assert all(param.dtype == torch.float32 for param in low.model.parameters())


def test_an_overflow_of_fp16_drops_the_step_and_is_counted() -> None:
    training = training_of(tiny_run("ivon", precision="fp16"))
    before = weights(training)
    training.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    advance(training, 1)
    assert training.skipped == 1
    assert torch.equal(weights(training), before)
    assert training.scaler.get_scale() == 2.0**119
    again = training_of(tiny_run("ivon", precision="fp16"))
    again.load_state_dict(training.state_dict())
    assert again.skipped == 1
    assert again.scaler.get_scale() == 2.0**119


@pytest.mark.parametrize("name", ["line", "letters"])
@pytest.mark.parametrize("method", ["ivon", "adamw"])
def test_regression_and_language(name: str, method: str) -> None:
    run = tiny_run(method, steps=60)
    model = Model("mlp", hidden=(8,)) if name == "line" else Model("gpt2_tiny")
    run = replace(run, model=model, data=replace(run.data, name=name, context=8, augment=False))
    training = training_of(run)
    losses = advance(training, 60)
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])
    test = build_batches(run, load(name, "test"), train=False)
    scores = training.evaluate(test)
    assert set(scores) == (
        {"nll", "rmse", "pearson", "spearman"} if name == "line" else {"nll", "perplexity", "accuracy"}
    )


def test_what_was_learned() -> None:
    ivon, sgd = training_of(tiny_run("ivon")), training_of(tiny_run("sgd"))
    advance(ivon, 2)
    advance(sgd, 2)
    gaussian, point = ivon.posterior(), sgd.posterior()
    assert isinstance(gaussian, DiagGaussian)
    assert set(gaussian.ess.values()) == {96.0}
    assert isinstance(point, Point)
    assert torch.equal(torch.cat([value.flatten() for value in point.mean.values()]), weights(sgd))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit")  # PyTorch's own, when its compiler is imported
def test_compilation_leaves_names_and_results() -> None:
    run = tiny_run("adamw")
    plain = training_of(run)
    compiled = training_of(replace(run, model=replace(run.model, compile=True)))
    assert list(plain.model.state_dict()) == list(compiled.model.state_dict())
    assert advance(compiled, 2) == pytest.approx(advance(plain, 2), rel=1e-4)


@pytest.mark.parametrize("method", ["ivon", "adamw", "sgd"])
def test_a_restored_state_goes_on_with_the_same_bits(method: str) -> None:
    run = tiny_run(method, precision="fp16", accumulate=2)
    straight, first, second = training_of(run), training_of(run), training_of(run, seed=99)
    advance(straight, 8)
    advance(first, 5)
    second.load_state_dict(first.state_dict())
    advance(second, 3)
    assert torch.equal(weights(straight), weights(second))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit")
@torch.no_grad()
def test_all_blocks_of_a_network_are_compiled() -> None:
    widths = range(1, 13)  # more than PyTorch compiles of one piece of code by itself

    class Block(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).relu()

    model = nn.Module()
    model.blocks = nn.Sequential(*(Block(width, width + 1) for width in widths))
    inputs = torch.ones(2, 1)
    expected = model.blocks(inputs)
    with torch._dynamo.config.patch(recompile_limit=8, fail_on_recompile_limit_hit=True):
        compile_in_place(model)
        torch.testing.assert_close(model.blocks(inputs), expected)


@pytest.mark.parametrize(("data", "model", "n", "terms"), [("blobs", "mlp", 96, 1), ("letters", "gpt2_tiny", 768, 5)])
def test_facts_count_the_terms_of_the_loss(data: str, model: str, n: int, terms: int) -> None:
    """Examples, or tokens of a text; a step has those of all micro-batches."""
    run = tiny_run(accumulate=2, steps=7, max_grad_norm=0.5)
    run = replace(run, seed=3, model=Model(model, 3), data=Data(data, batch_size=4, context=5))
    facts = training_of(run).facts
    task = "classification" if terms == 1 else "language"
    assert facts == Facts(n, batch_size=4 * terms * 2, steps=7, task=task, seed=3, max_grad_norm=0.5)
