"""IVON: lines 3 to 7 of Algorithm 1, and averages over several samples. Twin of core/update.py and native/ivon.h."""

# pyright: reportMissingParameterType=false, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl

from varlearn.optim.engine.triton import row_layout
from varlearn.optim.engine.triton.block_kernels import (
    at_least,
    block_of,
    bounded,
    is_whole,
    key_of,
    pointer_at,
    read,
    set_mark,
    write,
)
from varlearn.optim.engine.triton.normal_kernels import normals
from varlearn.optim.engine.triton.step_kernels import mean_of, write_mean

FIRST: tl.constexpr = tl.constexpr(row_layout.FIRST)
CURVATURE: tl.constexpr = tl.constexpr(row_layout.CURVATURE)
GRAD: tl.constexpr = tl.constexpr(row_layout.GRAD)
ESTIMATE: tl.constexpr = tl.constexpr(row_layout.ESTIMATE)
PRIOR: tl.constexpr = tl.constexpr(row_layout.PRIOR)
SETTINGS: tl.constexpr = tl.constexpr(row_layout.SETTINGS)
ESTIMATE_MEAN: tl.constexpr = tl.constexpr(row_layout.ESTIMATE_MEAN)
GRAD_MEAN: tl.constexpr = tl.constexpr(row_layout.GRAD_MEAN)
CAPTURED: tl.constexpr = tl.constexpr(row_layout.CAPTURED)
REPARAM: tl.constexpr = tl.constexpr(row_layout.REPARAM)
GIVEN: tl.constexpr = tl.constexpr(row_layout.GIVEN)

# The scalars of a step, as `IvonHyper` of native/scalars.py has them after the approximation.
GRAD_FACTOR: tl.constexpr = tl.constexpr(0)
NOISE_SCALE: tl.constexpr = tl.constexpr(1)
NOISE_DECAY: tl.constexpr = tl.constexpr(2)
NOISE_LOWEST: tl.constexpr = tl.constexpr(3)
BETA1: tl.constexpr = tl.constexpr(4)
GRAD_WEIGHT: tl.constexpr = tl.constexpr(5)
HESS_WEIGHT: tl.constexpr = tl.constexpr(6)
DECAY: tl.constexpr = tl.constexpr(7)
LOWEST: tl.constexpr = tl.constexpr(8)
LOWEST_HESS: tl.constexpr = tl.constexpr(9)
CLIP_RADIUS: tl.constexpr = tl.constexpr(12)
PRIOR_MEAN: tl.constexpr = tl.constexpr(13)
LARGEST: tl.constexpr = tl.constexpr(14)
LARGEST_MEAN: tl.constexpr = tl.constexpr(15)
SCALARS: tl.constexpr = tl.constexpr(16)

# Of the clock of a row.
CLOCK: tl.constexpr = tl.constexpr(row_layout.CLOCK)
RATE: tl.constexpr = tl.constexpr(row_layout.RATE)
UNBIAS: tl.constexpr = tl.constexpr(row_layout.UNBIAS)
CLIP: tl.constexpr = tl.constexpr(row_layout.CLIP)


@triton.jit
def estimate_of(grad, hess, words, start, left, key, s, HOW: tl.constexpr, BLOCK: tl.constexpr, IS_WHOLE: tl.constexpr):
    """Line 3: hhat = ghat epsilon / sigma of one sample, or ghat^2, or what the caller has."""
    if HOW == REPARAM:
        precision = at_least(hess + tl.load(s + NOISE_DECAY), tl.load(s + NOISE_LOWEST))
        estimate = tl.sqrt_rn(precision) * tl.load(s + NOISE_SCALE) * grad
        estimate = estimate * normals(key, start // 2, BLOCK // 2)
    elif HOW == GIVEN:
        estimate = read(pointer_at(tl.load(words + ESTIMATE), start, tl.float32, IS_WHOLE), left, BLOCK, IS_WHOLE)
    else:
        scaled = grad * tl.load(s + GRAD_FACTOR)
        estimate = scaled * scaled
    return bounded(estimate, -tl.load(s + LARGEST), tl.load(s + LARGEST))


@triton.jit
def step_block(
    words, start, left, key, s, clock, unscale, is_in,
    DTYPE: tl.constexpr, GRAD_DTYPE: tl.constexpr, KEEP: tl.constexpr, HOW: tl.constexpr, BLOCK: tl.constexpr,
    IS_WHOLE: tl.constexpr,
):  # fmt: skip
    """Lines 3 to 7 for a block."""
    grad = read(pointer_at(tl.load(words + GRAD), start, GRAD_DTYPE, IS_WHOLE), left, BLOCK, IS_WHOLE) * unscale
    hess_at = pointer_at(tl.load(words + CURVATURE), start, tl.float32, IS_WHOLE)
    hess = read(hess_at, left, BLOCK, IS_WHOLE)
    estimate = estimate_of(grad, hess, words, start, left, key, s, HOW, BLOCK, IS_WHOLE)
    # h + d (1 + x/2) with d = (1 - beta2)(hhat - h) and x = d / (h + delta): +inf at worst, never NaN.
    decay, lowest = tl.load(s + DECAY), tl.load(s + LOWEST)
    d = (estimate - hess) * tl.load(s + HESS_WEIGHT)
    relative = tl.div_rn(d, at_least(hess + decay, lowest))
    hess = bounded(hess + d * (1.0 + 0.5 * relative), tl.load(s + LOWEST_HESS), tl.load(s + LARGEST))
    write(hess_at, hess, left, BLOCK, IS_WHOLE)
    momentum_at = pointer_at(tl.load(words + FIRST), start, tl.float32, IS_WHOLE)
    weight = tl.load(s + GRAD_WEIGHT) * tl.load(clock + CLIP)
    momentum = tl.load(s + BETA1) * read(momentum_at, left, BLOCK, IS_WHOLE) + weight * grad
    write(momentum_at, momentum, left, BLOCK, IS_WHOLE)
    mean = mean_of(words, start, left, is_in, DTYPE, KEEP, BLOCK, IS_WHOLE)
    prior_at = tl.load(words + PRIOR)
    if prior_at != 0:
        offset = mean - read(pointer_at(prior_at, start, tl.float32, IS_WHOLE), left, BLOCK, IS_WHOLE)
    else:
        offset = mean - tl.load(s + PRIOR_MEAN)
    direction = tl.div_rn(momentum * tl.load(clock + UNBIAS) + decay * offset, at_least(hess + decay, lowest))
    radius, largest = tl.load(s + CLIP_RADIUS), tl.load(s + LARGEST_MEAN)
    mean = bounded(mean - tl.load(clock + RATE) * bounded(direction, -radius, radius), -largest, largest)
    write_mean(words, start, mean, left, DTYPE, KEEP, BLOCK, IS_WHOLE)


@triton.jit(do_not_specialize=["number"])
def step(
    rows, blocks, keys, scalars, clock, found, marks, number,
    DTYPE: tl.constexpr, GRAD_DTYPE: tl.constexpr, KEEP: tl.constexpr, HOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Update mean and state, unless a number that is not finite was found. `clock` is from `prepare`."""
    row, words, start, left, mark = block_of(rows, blocks, BLOCK)
    if (tl.load(found) == 0) & (left > 0):
        key, s = key_of(words, keys), scalars + tl.load(words + SETTINGS) * SCALARS
        unscale, its = tl.load(clock), clock + 2 + row * CLOCK
        is_in = tl.load(marks + mark) == number
        if is_whole(words, left, BLOCK):
            step_block(
                words, start, left, key, s, its, unscale, is_in, DTYPE, GRAD_DTYPE, KEEP, HOW, BLOCK, True
            )  # fmt: skip
        else:
            step_block(
                words, start, left, key, s, its, unscale, is_in, DTYPE, GRAD_DTYPE, KEEP, HOW, BLOCK, False
            )  # fmt: skip
        set_mark(marks + mark, -number)


@triton.jit
def fold_block(
    words, start, left, key, s, GRAD_DTYPE: tl.constexpr, HOW: tl.constexpr, BLOCK: tl.constexpr, IS_WHOLE: tl.constexpr
):  # fmt: skip
    """Running means of ghat and hhat for a block; beta1 weighs the old mean and `GRAD_WEIGHT` the new value."""
    grad = read(pointer_at(tl.load(words + GRAD), start, GRAD_DTYPE, IS_WHOLE), left, BLOCK, IS_WHOLE)
    hess = read(pointer_at(tl.load(words + CURVATURE), start, tl.float32, IS_WHOLE), left, BLOCK, IS_WHOLE)
    old, new = tl.load(s + BETA1), tl.load(s + GRAD_WEIGHT)
    estimate = estimate_of(grad, hess, words, start, left, key, s, HOW, BLOCK, IS_WHOLE)
    mean_at = pointer_at(tl.load(words + ESTIMATE_MEAN), start, tl.float32, IS_WHOLE)
    write(mean_at, old * read(mean_at, left, BLOCK, IS_WHOLE) + new * estimate, left, BLOCK, IS_WHOLE)
    grad_mean = tl.load(words + GRAD_MEAN)
    if grad_mean != 0:
        at = pointer_at(grad_mean, start, GRAD_DTYPE, IS_WHOLE)
        mean = old * read(at, left, BLOCK, IS_WHOLE) + new * grad
        write(at, mean, left, BLOCK, IS_WHOLE)
        captured = tl.load(words + CAPTURED)
        if captured != 0:
            write(pointer_at(captured, start, GRAD_DTYPE, IS_WHOLE), mean, left, BLOCK, IS_WHOLE)


@triton.jit
def fold(
    rows, blocks, keys, scalars, GRAD_DTYPE: tl.constexpr, HOW: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Average gradient and hhat with those of earlier samples."""
    _, words, start, left, _ = block_of(rows, blocks, BLOCK)
    key, s = key_of(words, keys), scalars + tl.load(words + SETTINGS) * SCALARS
    if is_whole(words, left, BLOCK):
        fold_block(words, start, left, key, s, GRAD_DTYPE, HOW, BLOCK, True)
    else:
        fold_block(words, start, left, key, s, GRAD_DTYPE, HOW, BLOCK, False)
