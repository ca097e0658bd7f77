"""The kernels compute what the loop computes: the same noise, the same rule, the same saturation."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.optim.engine.problems import (
    Quadratics,
    assert_close,
    copied,
    hyper,
    layouts,
    member,
    needs_compiler,
    new_group,
    plan_of,
    stepped,
)  # fmt: skip
from varlearn.core.noise import derive_key, fold_in, normal_
from varlearn.core.update import lowest_hess
from varlearn.optim.engine.plan import Noise, StepSettings

pytestmark = needs_compiler

FLOAT32_MAX = torch.finfo(torch.float32).max


def native_normals(size: int, key: int) -> Tensor:
    """The noise of the parameter with index 0."""
    out, group = torch.zeros(size), new_group()
    plan_of("native", [member(out, 0, group, hess=1.0)]).draw({id(group): Noise(key, 1.0, 0.0)})
    return out


@pytest.mark.parametrize("key", [0, 1, 2**63, 2**64 - 1, derive_key(3, 5, 7, 11, 13)])
def test_the_noise_is_core_noise(key: int) -> None:
    ours = native_normals(1_000_003, key)
    torch.testing.assert_close(ours, normal_(torch.empty(1_000_003), fold_in(key, 0)), rtol=0, atol=2e-6)


def test_the_noise_is_closer_to_the_exact_numbers_than_float32_operations_are() -> None:
    key = fold_in(1, 0)
    exact = normal_(torch.empty(1_000_000, dtype=torch.float64), key)
    error = (native_normals(1_000_000, 1) - exact).square().mean().sqrt()
    plain_error = (normal_(torch.empty(1_000_000), key) - exact).square().mean().sqrt()
    assert 1e-8 < error <= plain_error < 2e-7


@given(key=st.integers(0, 2**64 - 1), size=st.integers(0, 600))
def test_a_short_tensor_gets_the_beginning_of_the_noise(key: int, size: int) -> None:
    expected = normal_(torch.empty(size), fold_in(key, 0))
    torch.testing.assert_close(native_normals(size, key), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_sample_is_the_loop_s(threads: int, sign: float) -> None:
    torch.set_num_threads(threads)
    means = layouts()
    groups = [new_group(memory="lean" if k % 2 else "fast") for k in range(6)]
    noises = {id(each): Noise(derive_key(0, k), 50.0 + k, 0.1 * (k % 3), sign) for k, each in enumerate(groups)}
    samples = {}
    for engine in ("native", "loop"):
        members = [member(copied(mean), 3 * k, groups[k % 6]) for k, mean in enumerate(means.values())]
        for each, mean in zip(members, means.values(), strict=True):
            each.state["hess"] = copied(mean).exp_()
        plan_of(engine, members).draw(noises)
        samples[engine] = [each.param for each in members]
    for name, ours, plain in zip(means, samples["native"], samples["loop"], strict=True):
        assert_close(ours, plain, 1e-6, name)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_a_bit(threads: int) -> None:
    states = []
    for count in (1, threads):
        torch.manual_seed(0)
        torch.set_num_threads(count)
        states.append(next(Quadratics().run("native", keep_sample=True)))
    for name in states[0]:
        assert all(map(torch.equal, states[0][name], states[1][name]))


# Saturation

# 3e38 rather than the largest float32: with that the debiased momentum may be the last finite number or the first
# infinite one, as the order of rounding has it.
ADVERSARIAL = [0.0, -0.0, 1e-45, 1e-38, 1e-20, 1e-3, 1.0, 1e3, 1e15, 1e30, 1e37, 3e38, math.inf]
signed_values = st.sampled_from(ADVERSARIAL + [-x for x in ADVERSARIAL])
finite_values = st.sampled_from([x for x in ADVERSARIAL[:-2] + [-x for x in ADVERSARIAL[:-2]]])


@given(st.data())
def test_adversarial_numbers_saturate_as_in_the_loop(data: st.DataObject) -> None:
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
    scalars = hyper(lr=rate, weight_decay=decay, beta2=beta2, clip_radius=clip_radius, debias=0.1)
    its = StepSettings(scalars, approximation, noise)
    outcomes = [stepped(engine, (mean, momentum, hess), grad, estimate, its) for engine in ("native", "loop")]
    # Rounding, magnified where epsilon is near zero, where h is near -delta, and where large terms cancel.
    epsilon, shifted = normal_(torch.empty(size), fold_in(noise.key, 0)), outcomes[1][2].double() + decay
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
