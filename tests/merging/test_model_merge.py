"""`merge` gives what the papers' formulas give, exactly where they are exact, and refuses what it cannot merge."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

import varlearn
from tests.reference import merging as reference
from varlearn.merging import Method, merge
from varlearn.merging.ties import trim_bound
from varlearn.posterior import DiagGaussian, Origin, Point, load, save

METHODS: list[Method] = [method for method in get_args(Method) if method != "regmean"]  # it has a file of its own
WEIGHTS, ALPHA = [0.7, 1.0, 0.4], 0.8


def numbers(seed: int, size: int = 40) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def posterior(seed: int, n: float | None = 100, dtype: torch.dtype = torch.float64, **origin: Any) -> DiagGaussian:
    hess = numbers(1000 + seed).exp() - 0.3  # some entries are negative
    known = Origin(**{"method": "ivon", "curvature": "ivon", "n": n, **origin})
    mean, hess = {"w": numbers(seed).to(dtype)}, {"w": hess.to(dtype)}
    return DiagGaussian(mean, hess, ess=1000.0, weight_decay=1.0, origin=known)


BASE = {"w": numbers(0)}
MODELS = [posterior(1, n=50), posterior(2, n=200), posterior(3, n=1000)]
SUMS = [model.hess["w"] * (model.origin.n or 0) for model in MODELS]


def arrays(tensors: list[Tensor]) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in tensors]


def close(found: Tensor, wanted: np.ndarray | Tensor, tolerance: float = 1e-13) -> None:
    torch.testing.assert_close(found, torch.as_tensor(wanted), rtol=tolerance, atol=tolerance)


def test_it_is_a_function_at_the_top() -> None:
    assert varlearn.merge is merge


@pytest.mark.parametrize("h0", [0.0, 30.0])
def test_hessian_is_the_papers_formula(h0: float) -> None:
    found = merge(BASE, MODELS, weights=WEIGHTS, alpha=ALPHA, base_hess=h0)["w"]
    means = arrays([model.mean["w"] for model in MODELS])
    prior = np.full(40, h0)
    close(found, reference.hessian(BASE["w"].numpy(), means, prior, arrays(SUMS), WEIGHTS, ALPHA))
    assert any((one < 0).any() for one in SUMS)


def test_the_base_may_bring_its_own_curvature() -> None:
    base = posterior(0, n=25)
    by_hand = merge(base.mean, MODELS, base_hess={"w": base.hess["w"] * 25})["w"]
    assert torch.equal(merge(base, MODELS)["w"], by_hand)
    assert not torch.equal(by_hand, merge(base.mean, MODELS)["w"])


def test_the_other_methods_are_those_of_their_papers() -> None:
    base, means = BASE["w"].numpy(), arrays([model.mean["w"] for model in MODELS])
    settings: dict[str, Any] = {"weights": WEIGHTS, "alpha": ALPHA}
    close(
        merge(BASE, MODELS, method="task_arithmetic", **settings)["w"],
        reference.task_arithmetic(base, means, WEIGHTS, ALPHA),
    )
    close(merge(BASE, MODELS, method="average")["w"], np.mean(means, axis=0))
    close(merge(BASE, MODELS, method="average", weights=[1, 1, 2])["w"], (means[0] + means[1] + 2 * means[2]) / 4)
    ties = merge(BASE, MODELS, method="ties", density=0.3, **settings)["w"]
    close(ties, reference.ties(base, means, WEIGHTS, ALPHA, keep=12))
    squares = [{"w": numbers(50 + index).square()} for index in range(3)]
    points = [Point(model.mean) for model in MODELS]
    fisher = merge(BASE, points, method="fisher", weights=WEIGHTS, hess=squares)["w"]
    close(fisher, reference.fisher(means, arrays([one["w"] for one in squares]), WEIGHTS))


def test_dare_keeps_the_fraction_and_scales_it_up() -> None:
    base, model = {"w": torch.zeros(100_000)}, Point({"w": torch.ones(100_000)})
    draw = merge(base, [model], method="dare", density=0.25, seed=1)["w"]
    assert draw.unique().tolist() == [0.0, 4.0]
    share = (draw > 0).double().mean().item()
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 100_000)
    assert torch.equal(draw, merge(base, [model], method="dare", density=0.25, seed=1)["w"])
    assert not torch.equal(draw, merge(base, [model], method="dare", density=0.25, seed=2)["w"])
    both = merge(base, [model, model], method="dare", density=0.25, seed=1)["w"]
    assert both.unique().tolist() == [0.0, 4.0, 8.0]  # each model has its own numbers


@pytest.mark.parametrize("method", METHODS)
def test_one_model_with_weight_1_is_itself(method: Method) -> None:
    for h0 in (None, 3.0):
        found = merge(BASE, [MODELS[0]], method=method, base_hess=h0, density=1.0)["w"]
        assert torch.equal(found, MODELS[0].mean["w"])
    single = MODELS[0].to(dtype=torch.float32)
    base = {"w": BASE["w"].float()}
    found, wanted = merge(base, [single], method=method, density=1.0)["w"], single.mean["w"]
    assert found.dtype == torch.float32
    distance = (found.view(torch.int32) - wanted.view(torch.int32)).abs().max()
    assert distance <= 1  # ulp


def test_equal_curvatures_give_task_arithmetic() -> None:
    h, h0 = 2.0, 5.0
    same = [{"w": torch.full((40,), h, dtype=torch.float64)} for _ in MODELS]
    factor = (h + h0) / (len(MODELS) * h + h0)
    close(
        merge(BASE, MODELS, hess=same, base_hess=h0)["w"],
        merge(BASE, MODELS, method="task_arithmetic", alpha=factor)["w"],
        1e-12,
    )


def test_a_large_h0_gives_plain_task_arithmetic() -> None:
    wanted = merge(BASE, MODELS, method="task_arithmetic", weights=WEIGHTS)["w"]
    gaps = [
        (merge(BASE, MODELS, weights=WEIGHTS, base_hess=h0)["w"] - wanted).abs().max().item()
        for h0 in (1e6, 1e9, 1e12, 1e20)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-14


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"dare"}))
def test_the_order_of_the_models_does_not_matter(method: Method) -> None:
    forward = merge(BASE, MODELS, method=method, weights=WEIGHTS, base_hess=2.0)["w"]
    close(merge(BASE, MODELS[::-1], method=method, weights=WEIGHTS[::-1], base_hess=2.0)["w"], forward, 1e-14)


def test_negative_curvature_counts_as_none() -> None:
    below = [{"w": torch.full((40,), -1.0, dtype=torch.float64)}, *[{"w": one} for one in SUMS[1:]]]
    zero = [{"w": torch.zeros(40, dtype=torch.float64)}, *below[1:]]
    assert torch.equal(merge(BASE, MODELS, hess=below)["w"], merge(BASE, MODELS, hess=zero)["w"])
    nothing = [{"w": torch.zeros(40)} for _ in MODELS]
    close(merge(BASE, MODELS, hess=nothing)["w"], merge(BASE, MODELS, method="task_arithmetic")["w"], 1e-14)


def test_means_and_sums_are_converted(tmp_path: Any) -> None:
    model = MODELS[0]
    summed = replace(model, hess={"w": SUMS[0]}, weight_decay=100.0, origin=replace(model.origin, per="sum", n=None))
    save(summed, tmp_path / "posterior.safetensors")
    read = load(tmp_path / "posterior.safetensors")
    assert torch.equal(merge(BASE, [read, *MODELS[1:]])["w"], merge(BASE, MODELS)["w"])


def test_second_moments_of_adamw_and_of_variational_adamw_are_one_curvature() -> None:
    """VAdamW's B v per mean loss is AdamW's sqrt(v) squared, times B."""
    v = numbers(70).square()
    learned = [
        replace(MODELS[0], hess={"w": 16 * v}, origin=Origin("vadamw", "squared_gradient", n=100, batch_size=16)),
        replace(MODELS[0], hess={"w": v.sqrt()}, origin=Origin("adamw", "sqrt_v", n=100, batch_size=16)),
        replace(MODELS[0], hess={"w": v}, origin=Origin("adamw", "second_moment", n=100, batch_size=16)),
    ]
    found = [merge(BASE, [one, MODELS[1]])["w"] for one in learned]
    close(found[0], found[1])
    close(found[0], found[2])
    close(found[0], merge(BASE, MODELS[:2], hess=[{"w": 1600 * v}, {"w": SUMS[1]}])["w"])


@pytest.mark.parametrize("method", METHODS)
def test_tensors_of_several_pieces(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"method": method, "weights": WEIGHTS, "alpha": ALPHA, "base_hess": 2.0}
    whole = merge(BASE, MODELS, **settings)["w"]
    monkeypatch.setattr("varlearn.merging.tensor_merge.PIECE", 7)
    pieces = merge(BASE, MODELS, **settings)["w"]
    if method == "dare":  # other random numbers
        assert torch.equal(pieces[:7], whole[:7])
    else:
        assert torch.equal(pieces, whole)


def test_tensors_are_merged_one_by_one_and_nothing_is_changed() -> None:
    base = {"b": numbers(7, 3).float().requires_grad_(), "a": numbers(8, 5).half().view(5, 1), "s": torch.tensor(1.0)}
    model = Point({"s": torch.tensor(2.0), "a": numbers(9, 5).half().view(5, 1), "b": numbers(10, 3).float()})
    before = {name: value.clone() for name, value in base.items()}
    for method in METHODS:
        squares = [{name: torch.ones_like(value) for name, value in base.items()}]
        found = merge(base, [model], method=method, hess=squares, alpha=0.5)
        assert {name: (v.dtype, v.shape) for name, v in found.items()} == {
            n: (v.dtype, v.shape) for n, v in base.items()
        }
        assert not any(value.requires_grad for value in found.values())
        alone = merge({"a": base["a"]}, [Point({"a": model.mean["a"]})], method=method, hess=[{"a": squares[0]["a"]}],
                      alpha=0.5)  # fmt: skip
        assert torch.equal(alone["a"], found["a"])
    assert all(torch.equal(base[name], value) for name, value in before.items())


WITHOUT_N = posterior(1, n=None)
BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: merge(BASE, []), r"posteriors=\[\] names no model"),
    (lambda: merge(None, MODELS), r"base is a NoneType and must be the weights"),  # type: ignore[arg-type]
    (lambda: merge(BASE, MODELS[0]), r"posteriors is a DiagGaussian and must be a list"),  # type: ignore[arg-type]
    (lambda: merge(BASE, [BASE], method="average"), r"posteriors\[0\] is a dict and must be"),  # type: ignore[list-item]
    (lambda: merge({}, MODELS), r"base=\{\} names no tensor"),
    (lambda: merge({"v": BASE["w"]}, MODELS), r"posteriors\[0\].mean lacks \['v'\] and has \['w'\] besides; merge"),
    (lambda: merge({"w": BASE["w"][:3]}, MODELS), r"posteriors\[0\].mean\['w'\] has shape \(40,\), but .* \(3,\); "),
    (lambda: merge({"w": BASE["w"].float()}, MODELS), r"torch.float64, but base\['w'\] is torch.float32; .* cast"),
    (lambda: merge({"w": BASE["w"].long()}, MODELS), r"base\['w'\] is torch.int64; only floats"),
    (lambda: merge({"w": BASE["w"] / 0}, MODELS), r"base\['w'\] has NaN or infinite entries; .* good checkpoint"),
    (lambda: merge(BASE, MODELS, weights=[1.0]), r"weights=\[1.0\] has 1 entries for 3 posteriors; give one weight"),
    (lambda: merge(BASE, MODELS, weights=[1, -1, 1]), r"weights=\[1, -1, 1\] must be >= 0"),
    (lambda: merge(BASE, MODELS, weights=[0, 0, 0]), r"weights=\[0, 0, 0\] must be .* not all 0"),
    (lambda: merge(BASE, MODELS, alpha=math.nan), r"alpha=nan must be >= 0 and finite; 1 is usual"),
    (lambda: merge(BASE, MODELS, alpha="1"), r"alpha='1' must be a number"),  # type: ignore[arg-type]
    (lambda: merge(BASE, MODELS, seed=0.5), r"seed=0.5 must be a whole number"),  # type: ignore[arg-type]
    (lambda: merge(BASE, MODELS, weights="111"), r"weights='111' must be a list of numbers"),  # type: ignore[arg-type]
    (lambda: merge(BASE, MODELS, density=1.5), r"density=1.5 must be > 0 and <= 1"),
    (lambda: merge(BASE, MODELS, method="best"), r"method='best' must be one of hessian, average"),  # type: ignore[arg-type]
    (lambda: merge(BASE, MODELS, base_hess=math.inf), r"base_hess=inf must be .* use method='task_arithmetic'"),
    (lambda: merge(BASE, MODELS, hess=[]), r"hess has 0 entries for 3 posteriors; give one dictionary"),
    (lambda: merge(BASE, MODELS, hess=[{"w": SUMS[0] / 0}] * 3), r"hess\[0\]\['w'\] has NaN or infinite"),
    (lambda: merge(BASE, [WITHOUT_N]), r"posteriors\[0\].origin.n=None: .* set it with dataclasses.replace"),
    (lambda: merge(BASE, [posterior(1, curvature=None)]), r"origin.curvature=None is no known estimate"),
    (lambda: merge(BASE, [posterior(1, curvature="constant")]), r"origin.curvature='constant' is no known estimate"),
    (lambda: merge(BASE, [posterior(1, curvature="sqrt_v")]), r"origin.batch_size=None: .* the examples of one step"),
    (lambda: merge(BASE, [posterior(1, curvature="sqrt_v", per="sum")]), r"'sqrt_v' belongs to the mean loss"),
    (lambda: merge(BASE, MODELS, method="regmean"), r"method='regmean' needs inputs="),
    (lambda: merge(WITHOUT_N, MODELS), r"base.origin.n=None"),
    (lambda: merge(BASE, [Point(BASE)]), r"posteriors\[0\] is a Point, which has no curvature; .* or give `hess`"),
    (lambda: merge({"w": torch.zeros(1).half()}, [Point({"w": torch.ones(1).half()})], method="average", alpha=1e6),
     r"the merged 'w' is too large for torch.float16; use a smaller alpha=1000000.0"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input_is_refused_with_value_rule_and_cure(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.parametrize("density", [0.01, 0.2, 0.5, 0.99, 1.0])
def test_the_bound_of_trimming_is_the_kth_largest(density: float) -> None:
    sizes = torch.cat([numbers(60, 900).abs(), torch.zeros(50).double(), numbers(61, 50).abs() * 1e-320, SUMS[0].abs()])
    count = max(1, round(density * sizes.numel()))
    wanted = sizes.sort(descending=True).values[count - 1].item() if density < 1 else 0.0
    assert trim_bound(lambda: sizes.split(77), sizes.numel(), density) == wanted
