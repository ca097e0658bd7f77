"""The fused CPU path does what the plain path does: the same noise, the same rule, the same saturation."""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from varlearn.optim.tasks import Approximation, Draw, Fold, Noise, Step

from varlearn.core.noise import derive_key, normal_
from varlearn.core.update import Hyper, lowest_hess
from varlearn.optim import loop, native, native_build


def has_compiler() -> bool:
    try:
        return bool(native_build.find_compiler())
    except native_build.BuildError:
        return False


# Where there is a compiler, the path must be there: a build that fails its own check is no reason to skip.
pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C compiler")

# A block is 32, 64 or 128 elements, as vectors are wide, a chunk 4096, and a second thread comes in at 16384.
SIZES = [0, 1, 2, 3, 127, 128, 129, 255, 4096, 4097, 20_001]
FLOAT32_MAX = torch.finfo(torch.float32).max


def same_as(x: Tensor) -> Tensor:
    """A copy in the same memory layout, as likely misaligned as the original."""
    room = torch.empty(x.numel() + x.storage_offset() % 8, dtype=x.dtype)
    return room.as_strided(x.shape, x.stride(), x.storage_offset() % 8).copy_(x)


def layouts() -> dict[str, Tensor]:
    """Parameters of every size and memory layout that the path takes."""
    tensors = {f"{size} elements": torch.randn(size) for size in SIZES}
    tensors["a number"] = torch.randn(())
    tensors["channels last"] = torch.randn(8, 3, 5, 7).to(memory_format=torch.channels_last)
    tensors["transposed"] = torch.randn(33, 65).t()
    tensors["misaligned"] = torch.randn(4200)[1:]
    return tensors


def spread(x: Tensor) -> float:
    return max(1.0, float(x.abs().max())) if x.numel() else 1.0


def assert_same(ours: Tensor, plain: Tensor, tolerance: float, what: str = "") -> None:
    """Equal to `tolerance` times the scale of the problem, which is one, or the largest number."""
    assert ours.shape == plain.shape
    assert bool(((ours - plain).abs() <= tolerance * spread(plain)).all()), what


def native_normals(size: int, key: int) -> Tensor:
    out = torch.zeros(size)
    native.draw([Draw(out, out, torch.ones(size), Noise(key, 1.0, 0.0))])
    return out


@pytest.mark.parametrize("key", [0, 1, 2**63, 2**64 - 1, derive_key(3, 5, 7, 11, 13)])
def test_the_noise_is_core_noise(key: int) -> None:
    ours = native_normals(1_000_003, key)
    torch.testing.assert_close(ours, normal_(torch.empty(1_000_003), key), rtol=0, atol=2e-6)


def test_the_noise_is_closer_to_the_exact_numbers_than_float32_operations_are() -> None:
    exact = normal_(torch.empty(1_000_000, dtype=torch.float64), 1)
    error = (native_normals(1_000_000, 1) - exact).square().mean().sqrt()
    plain_error = (normal_(torch.empty(1_000_000), 1) - exact).square().mean().sqrt()
    assert 1e-8 < error <= plain_error < 2e-7


@given(key=st.integers(0, 2**64 - 1), size=st.integers(0, 600))
def test_a_short_tensor_gets_the_beginning_of_the_noise(key: int, size: int) -> None:
    torch.testing.assert_close(native_normals(size, key), normal_(torch.empty(size), key), rtol=0, atol=2e-6)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_sample_is_the_plain_path_s(threads: int, sign: float) -> None:
    torch.set_num_threads(threads)
    means = layouts()
    noises = [Noise(derive_key(0, 1, index=i), 50.0 + i, 0.1 * (i % 3)) for i in range(len(means))]
    for in_place in (False, True):
        samples: dict[Callable[..., None], list[Tensor]] = {}
        for path in (loop.draw, native.draw):
            params = [same_as(mean) for mean in means.values()]
            tasks = []
            for param, mean, noise in zip(params, means.values(), noises, strict=True):
                tasks.append(Draw(param, param if in_place else mean, same_as(mean).exp_(), noise, sign))
            assert all(native.supports(task) for task in tasks)
            path(tasks)
            samples[path] = params
        for name, ours, plain in zip(means, samples[native.draw], samples[loop.draw], strict=True):
            assert_same(ours, plain, 1e-6, name)


def problem(
    approximation: str, prior: str, clip_radius: float, factors: tuple[float, float]
) -> Callable[[Callable[..., None], Callable[..., None]], Iterator[dict[str, list[Tensor]]]]:
    """Noisy quadratics in every layout, two groups with their own hyperparameters, as a run of either path."""
    means = list(layouts().values())
    targets = [torch.randn_like(mean) for mean in means]
    curvatures = [torch.rand_like(mean) + 0.1 for mean in means]
    priors = [torch.randn_like(mean) if prior == "tensor" else float(prior) for mean in means]

    def run(draw: Callable[..., None], step: Callable[..., None]) -> Iterator[dict[str, list[Tensor]]]:
        q = {
            "mean": [same_as(mean) for mean in means],
            "momentum": [same_as(mean).zero_() for mean in means],
            "hess": [same_as(mean).fill_(0.5) for mean in means],
        }
        for t in itertools.count(1):
            tasks = []
            for i, (mean, momentum, hess) in enumerate(zip(*q.values(), strict=True)):
                ess, decay = (1000.0, 1e-3) if i % 2 else (200.0, 1e-2)
                beta2, rate = (0.99, 0.1) if i % 2 else (0.9, 0.03)
                noise = Noise(derive_key(1, t, index=i), ess, decay)
                sample = same_as(mean)
                draw([Draw(sample, mean, hess, noise)])
                grad = curvatures[i] * (sample - targets[i]) / factors[0]
                hyper = Hyper(rate, ess, decay, 0.9, beta2, clip_radius, 1.0 - 0.9**t)
                estimate = None if approximation != "given" else curvatures[i] + 0.1 * grad
                how = "reparam" if approximation == "given" else approximation
                tasks.append(Step(mean, mean, momentum, hess, grad, how, estimate, noise, priors[i], *factors, hyper))
            assert all(native.supports(task) for task in tasks)
            step(tasks)
            yield q

    return run


CASES = list(
    itertools.product(
        ["reparam", "squared_gradient", "given"], ["0", "0.3", "tensor"], [math.inf, 0.05], [(1.0, 1.0), (-0.25, 0.5)]
    )
)


def compare_runs(run: Callable[..., Iterator[dict[str, list[Tensor]]]], steps: int, tolerance: float) -> None:
    ours, plain = run(native.draw, native.step), run(loop.draw, loop.step)
    for t, (a, b) in enumerate(itertools.islice(zip(ours, plain, strict=True), steps), 1):
        for name in a:
            for x, y in zip(a[name], b[name], strict=True):
                assert_same(x, y, tolerance, f"{name} of {tuple(x.shape)} after step {t}")


@pytest.mark.parametrize(("approximation", "prior", "clip_radius", "factors"), CASES)
def test_every_combination(approximation: str, prior: str, clip_radius: float, factors: tuple[float, float]) -> None:
    compare_runs(problem(approximation, prior, clip_radius, factors), steps=3, tolerance=2e-6)


@pytest.mark.parametrize("approximation", ["reparam", "squared_gradient", "given"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_hundred_steps_side_by_side(approximation: str, threads: int) -> None:
    """Each path follows its own samples and its own gradients, so rounding errors add up: 10^-5 of the scale."""
    torch.set_num_threads(threads)
    compare_runs(problem(approximation, "tensor", 1.0, (1.0, 1.0)), steps=100, tolerance=1e-5)


@pytest.mark.parametrize("approximation", ["reparam", "squared_gradient"])
@pytest.mark.parametrize("keep_grad", [True, False])
def test_running_means_are_the_plain_path_s(approximation: Approximation, keep_grad: bool) -> None:
    outcomes = []
    for fold in (native.fold, loop.fold):
        torch.manual_seed(1)
        means = []
        for i, like in enumerate(layouts().values()):
            grad_mean, estimate_mean = (torch.randn_like(like) if keep_grad else None), torch.randn_like(like)
            hess = torch.rand_like(like)
            for count in (1, 2, 5):
                noise = Noise(derive_key(0, count, index=i), 20.0, 0.1)
                grad = torch.randn_like(like)
                captured = None if grad_mean is None else torch.zeros_like(like)
                task = Fold(grad, grad_mean, estimate_mean, hess, approximation, noise, count, captured)
                assert native.supports(task)
                fold([task])
                assert captured is None or grad_mean is None or torch.equal(captured, grad_mean)
            means += [estimate_mean] if grad_mean is None else [grad_mean, estimate_mean]
        outcomes.append(means)
    for ours, plain in zip(*outcomes, strict=True):
        assert_same(ours, plain, 1e-6)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_a_bit(threads: int) -> None:
    states = []
    for count in (1, threads):
        torch.manual_seed(0)
        torch.set_num_threads(count)
        states.append(next(problem("reparam", "0", math.inf, (1.0, 1.0))(native.draw, native.step)))
    for name in states[0]:
        assert all(map(torch.equal, states[0][name], states[1][name]))


# 3e38 rather than the largest float32: with that the debiased momentum may be the last finite number or the first
# infinite one, as the order of rounding has it.
ADVERSARIAL = [0.0, -0.0, 1e-45, 1e-38, 1e-20, 1e-3, 1.0, 1e3, 1e15, 1e30, 1e37, 3e38, math.inf]
signed_values = st.sampled_from(ADVERSARIAL + [-x for x in ADVERSARIAL])
finite_values = st.sampled_from([x for x in ADVERSARIAL[:-2] + [-x for x in ADVERSARIAL[:-2]]])


@given(st.data())
def test_adversarial_numbers_saturate_as_in_the_plain_path(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([1, 5, 130]))
    decay = data.draw(st.sampled_from([0.0, 1e-30, 1e-4, 1.0, 1e20]))

    def tensor(values: st.SearchStrategy[float]) -> Tensor:
        few = data.draw(st.lists(values, min_size=1, max_size=5))
        return torch.tensor(list(itertools.islice(itertools.cycle(few), size)), dtype=torch.float32)

    mean, momentum, grad = tensor(finite_values).clamp_(-1e15, 1e15), tensor(finite_values), tensor(signed_values)
    hess = tensor(finite_values).clamp_(lowest_hess(decay, torch.float32))
    estimate = data.draw(st.sampled_from([None, tensor(signed_values)]))
    beta2, rate = data.draw(st.sampled_from([0.0, 0.5, 0.99999])), data.draw(st.sampled_from([0.0, 1e-8, 1.0, 1e30]))
    clip_radius = data.draw(st.sampled_from([1e-3, math.inf]))
    approximation = data.draw(st.sampled_from(["reparam", "squared_gradient"]))
    noise = Noise(data.draw(st.integers(0, 9)), data.draw(st.sampled_from([1.0, 1e10])), decay)
    hyper = Hyper(rate, 1.0, decay, 0.9, beta2, clip_radius, 0.1)
    outcomes = []
    for step in (native.step, loop.step):
        m, g, h = mean.clone(), momentum.clone(), hess.clone()
        step([Step(m, m, g, h, grad, approximation, estimate, noise, 0.0, 1.0, 1.0, hyper)])
        outcomes.append((m, g, h))
    # Rounding, magnified where epsilon is near zero, where h is near -delta, and where large terms cancel.
    epsilon, shifted = normal_(torch.empty(size), noise.key), outcomes[1][2].double() + decay
    slack = 1e-5 + 1e-5 / epsilon.double().abs()
    scales = {
        "mean": (outcomes[1][0].double().abs() + mean.abs()) * (1.0 + decay / shifted),
        "momentum": momentum.double().abs() + grad.abs(),
        "hess": outcomes[1][2].double().abs() + hess.abs() + decay,
    }
    for (name, scale), ours, plain in zip(scales.items(), *outcomes, strict=True):
        close = (ours.double() - plain.double()).abs() <= slack * scale
        assert bool((close | (ours == plain) | (ours.isnan() & plain.isnan())).all()), (name, ours, plain)
    assert bool((outcomes[0][2] + decay > 0).all())


@pytest.mark.parametrize("decay", [1e-30, 1e-4, 0.3, 7.0])
@pytest.mark.parametrize("below", [0.0, 1.0])
def test_the_smallest_precision_is_the_plain_path_s(decay: float, below: float) -> None:
    """At h = -delta and further down, where delta was lowered: sigma, hhat, h and m."""
    outcomes = []
    for path in (native, loop):
        hess = torch.full((5,), lowest_hess(decay, torch.float32) - below)
        noise, hyper = Noise(3, 2.0, decay), Hyper(1e-20, 2.0, decay, 0.5, 0.5, math.inf, 1.0)
        sample = torch.empty(5)
        path.draw([Draw(sample, torch.zeros(5), hess, noise)])
        states = [sample]
        for estimate in (None, hess.clone()):
            mean, momentum, h = torch.zeros(5), torch.ones(5), hess.clone()
            path.step([Step(mean, mean, momentum, h, torch.ones(5), "reparam", estimate, noise, 0.0, 1.0, 1.0, hyper)])
            states += [mean, h]
        outcomes.append(states)
    for ours, plain in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("estimate", [math.inf, -math.inf, FLOAT32_MAX, 1e38])
@pytest.mark.parametrize("hess", [1.0, 1e30, 1e33])
def test_an_estimate_saturates_before_it_is_averaged(estimate: float, hess: float) -> None:
    outcomes = []
    for step in (native.step, loop.step):
        mean, momentum, h = torch.zeros(3), torch.zeros(3), torch.full((3,), hess)
        hyper = Hyper(0.1, 1.0, 0.1, 0.9, 0.99999, 1.0, 1.0)
        hhat = torch.full((3,), estimate)
        step([Step(mean, mean, momentum, h, torch.zeros(3), "reparam", hhat, Noise(1, 1.0, 0.1), 0.0, 1.0, 1.0, hyper)])
        outcomes.append(h)
    torch.testing.assert_close(*outcomes, rtol=1e-5, atol=0.0)


def test_nan_is_not_hidden_by_the_bounds() -> None:
    mean, momentum, hess = torch.zeros(3), torch.zeros(3), torch.ones(3)
    hyper = Hyper(0.1, 1.0, 0.1, 0.9, 0.9, 1.0, 1.0)
    grad = torch.tensor([1.0, math.nan, 1.0])
    native.step([Step(mean, mean, momentum, hess, grad, "reparam", None, Noise(1, 1.0, 0.1), 0.0, 1.0, 1.0, hyper)])
    for tensor in (mean, momentum, hess):
        assert tensor.isnan().tolist() == [False, True, False]


@given(size=st.integers(1, 10_000), where=st.floats(0, 1, exclude_max=True), bad=st.sampled_from([math.inf, math.nan]))
def test_all_finite_finds_one_bad_number_anywhere(size: int, where: float, bad: float) -> None:
    tensors = [torch.full((3, 5), FLOAT32_MAX), torch.full((size,), -FLOAT32_MAX), torch.zeros(0)]
    assert native.all_finite(tensors)
    tensors[1][int(where * size)] = -bad
    assert not native.all_finite(tensors)


def test_all_finite_of_nothing_and_of_much() -> None:
    assert native.all_finite([])
    torch.set_num_threads(2)
    many = [torch.zeros(100_000) for _ in range(3)]
    assert native.all_finite(many)
    many[2][99_999] = math.nan
    assert not native.all_finite(many)


def test_autograd_notices_the_writes() -> None:
    weight = torch.ones(3, requires_grad=True)
    for write in (
        lambda: native.draw([Draw(weight, weight, torch.ones(3), Noise(0, 1.0, 0.0))]),
        lambda: native.step([step_of(weight, grad=torch.ones(3))]),
    ):
        loss = weight.square().sum()
        write()
        with pytest.raises(RuntimeError, match="inplace"):
            loss.backward()


def step_of(param: Tensor, **changes: object) -> Step:
    zeros, hyper = torch.zeros_like(param), Hyper(0.1, 1.0, 0.0, 0.9, 0.9, 1.0, 1.0)
    task = Step(param, param, zeros, zeros, zeros, "reparam", None, Noise(0, 1.0, 0.0), 0.0, 1.0, 1.0, hyper)
    return task._replace(**changes)


class Marked(Tensor):
    """A subclass that could mean anything."""


@pytest.mark.parametrize(
    ("task", "supported"),
    [
        (step_of(torch.zeros(3)), True),
        (step_of(torch.nn.Parameter(torch.zeros(3)).detach()), True),
        (step_of(torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)), True),
        (step_of(torch.zeros(0)), True),
        (step_of(torch.zeros(3), prior_mean=torch.zeros(3), estimate=torch.zeros(3)), True),
        (step_of(torch.zeros(3, dtype=torch.float64)), False),
        (step_of(torch.zeros(3), mean=torch.zeros(3)), False),
        (step_of(torch.zeros(3), grad=torch.zeros(3, dtype=torch.bfloat16)), False),
        (step_of(torch.zeros(3), hess=torch.zeros(3, dtype=torch.float64)), False),
        (step_of(torch.zeros(3), momentum=torch.zeros(4)), False),
        (step_of(torch.zeros(3), prior_mean=torch.zeros(())), False),
        (step_of(torch.zeros(3), estimate=torch.zeros(3, device="meta")), False),
        (step_of(torch.zeros(3), grad=torch.zeros(1).expand(3)), False),
        (step_of(torch.zeros(3, 4), grad=torch.zeros(4, 3).t()), False),
        (step_of(torch.zeros(3, 4).t(), hess=torch.zeros(4, 3)), False),
        (step_of(torch.zeros(3), grad=torch.zeros(3).to_sparse()), False),
        (step_of(torch.zeros(1), grad=torch.ones(1, dtype=torch.complex64).conj().imag), False),
        (step_of(torch.zeros(3), grad=torch._efficientzerotensor(3)), False),
        (step_of(torch.zeros(3, 4)[:, ::2]), False),
        (step_of(torch.zeros(3).as_subclass(Marked)), False),
        (step_of(torch.zeros(3), hess=torch.zeros(3).as_subclass(Marked)), False),
        (Draw(torch.zeros(3), torch.zeros(3), torch.zeros(3), Noise(0, 1.0, 0.0)), True),
        (Draw(torch.zeros(3).half(), torch.zeros(3), torch.zeros(3), Noise(0, 1.0, 0.0)), False),
        (Draw(torch.zeros(3), torch.zeros(3), torch.zeros(4), Noise(0, 1.0, 0.0)), False),
        (Draw(torch.zeros(3, device="meta"), torch.zeros(3), torch.zeros(3), Noise(0, 1.0, 0.0)), False),
    ],
)
def test_only_plain_dense_float32_on_the_cpu_is_taken(task: Draw | Step, supported: bool) -> None:
    assert native.supports(task) is supported


@pytest.fixture
def _fresh_attempt() -> Iterator[None]:
    native._attempt.cache_clear()
    native._warn.cache_clear()
    yield
    native._attempt.cache_clear()
    native._warn.cache_clear()


@pytest.mark.usefixtures("_fresh_attempt")
def test_without_a_compiler_there_is_one_warning_with_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert not native.available()
    with pytest.warns(UserWarning, match="no C compiler.*packed path is used.*Install a C compiler"):
        assert not native.load_or_warn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not native.load_or_warn()
    with pytest.raises(native_build.BuildError, match="no C compiler"):
        native.load()


@pytest.mark.usefixtures("_fresh_attempt")
@pytest.mark.parametrize("variant", [(), ("-fopenmp",), ("-O1",)])
def test_a_build_for_any_processor_agrees(
    variant: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native_build, "_VARIANTS", (variant,))
    torch.testing.assert_close(native_normals(5001, 7), normal_(torch.empty(5001), 7), rtol=0, atol=2e-6)
    compare_runs(problem("reparam", "tensor", 1.0, (1.0, 1.0)), steps=2, tolerance=2e-6)


@pytest.mark.usefixtures("_fresh_attempt")
def test_a_library_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "step", lambda tasks: tasks[0].mean.add_(1.0))
    with pytest.raises(native_build.BuildError, match="wrong on a small example"):
        native.load()
