"""Line 2: a sample goes into the weights, and comes out again. Twin of `Draw` in native/kernel.c.

Every block has a mark. A draw sets it to the number of the draw after the block is written. A restore acts where it
finds that number, and negates it. So a restore may be repeated after an interrupt, and does nothing to a block that the
draw has not reached.
"""

# pyright: reportMissingParameterType=false, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl

from varlearn.optim.engine.triton import row_layout
from varlearn.optim.engine.triton.block_kernels import (
    at_least,
    block_of,
    is_whole,
    key_of,
    pointer_at,
    power,
    read,
    set_mark,
    within_dtype,
    write,
)
from varlearn.optim.engine.triton.normal_kernels import fold_in, normals

PARAM: tl.constexpr = tl.constexpr(row_layout.PARAM)
MEAN: tl.constexpr = tl.constexpr(row_layout.MEAN)
CURVATURE: tl.constexpr = tl.constexpr(row_layout.CURVATURE)
LEAN: tl.constexpr = tl.constexpr(row_layout.LEAN)
COPY: tl.constexpr = tl.constexpr(row_layout.COPY)
STATE: tl.constexpr = tl.constexpr(row_layout.STATE)
BASE: tl.constexpr = tl.constexpr(row_layout.BASE)
REPLICA: tl.constexpr = tl.constexpr(row_layout.REPLICA)
DRAW: tl.constexpr = tl.constexpr(row_layout.DRAW)
ORIGIN: tl.constexpr = tl.constexpr(row_layout.ORIGIN)
TAKEN: tl.constexpr = tl.constexpr(row_layout.TAKEN)
HOST_TAKEN: tl.constexpr = tl.constexpr(row_layout.HOST_TAKEN)
FACTOR: tl.constexpr = tl.constexpr(row_layout.FACTOR)
DELTA: tl.constexpr = tl.constexpr(row_layout.DELTA)
LAMBDA_START: tl.constexpr = tl.constexpr(row_layout.LAMBDA_START)
LAMBDA_RATIO: tl.constexpr = tl.constexpr(row_layout.LAMBDA_RATIO)
LAMBDA_END: tl.constexpr = tl.constexpr(row_layout.LAMBDA_END)
BATCH: tl.constexpr = tl.constexpr(row_layout.BATCH)
SQUARE_BETA: tl.constexpr = tl.constexpr(row_layout.SQUARE_BETA)
PRIOR_STD: tl.constexpr = tl.constexpr(row_layout.PRIOR_STD)
SCALING: tl.constexpr = tl.constexpr(row_layout.SCALING)


@triton.jit(do_not_specialize=["groups", "is_captured"])
def make_keys(origins, draws, keys, groups, is_captured, BLOCK: tl.constexpr):
    """The keys of a training sample, as `core.noise.derive_key` makes them.

    `draws` remembers the number of the last sample of each group. In a CUDA graph the number in the table is how many
    samples further this one is, so that each replay has noise of its own. `is_captured` is 1 then, else 0: a number
    and no constant, because a kernel cannot be loaded while a graph is captured.
    """
    for first in range(0, groups, BLOCK):
        group = first + tl.arange(0, BLOCK)
        exists = group < groups
        its = origins + group * ORIGIN
        number = tl.load(its + DRAW, mask=exists, other=0)
        number += is_captured * tl.load(draws + group, mask=exists, other=0)
        tl.debug_barrier()  # several threads read an element, and one of them replaces it
        tl.store(draws + group, number, mask=exists)
        key = tl.load(its + BASE, mask=exists, other=0).to(tl.uint64, bitcast=True)
        key = fold_in(key, number.to(tl.uint64, bitcast=True))
        key = fold_in(key, tl.load(its + REPLICA, mask=exists, other=0).to(tl.uint64, bitcast=True))
        key = fold_in(key, tl.zeros_like(key))  # the index of derive_key, which has a default
        tl.store(keys + group, key.to(tl.int64, bitcast=True), mask=exists)


@triton.jit(do_not_specialize=["count"])
def make_scales(facts, drift, scales, count, BLOCK: tl.constexpr):
    """The scale of sigma in variational AdamW, after as many steps as the device has taken. See `core.vadamw.scale`."""
    for first in range(0, count, BLOCK):
        row = first + tl.arange(0, BLOCK)
        exists = row < count
        its = facts + row * SCALING
        taken = tl.load(its + TAKEN, mask=exists, other=0.0).to(tl.int32) + tl.load(drift + row, mask=exists, other=0)
        is_known = taken == tl.load(its + HOST_TAKEN, mask=exists, other=0.0).to(tl.int32)
        start, ratio = tl.load(its + LAMBDA_START, mask=exists, other=1.0), tl.load(its + LAMBDA_RATIO, mask=exists)
        end = tl.load(its + LAMBDA_END, mask=exists, other=1.0)
        ess = start * power(ratio, taken)
        ess = tl.where(ess > end, ess, end)
        debias = 1.0 - power(tl.load(its + SQUARE_BETA, mask=exists, other=0.0), taken)
        inverse = ess * tl.load(its + BATCH, mask=exists, other=1.0) / tl.where(taken > 0, debias, 1.0)
        prior = tl.load(its + PRIOR_STD, mask=exists, other=1.0)
        delta = 1.0 / (inverse * prior * prior)
        delta = tl.where(delta > 1.2e-38, delta, 1.2e-38)
        factor = tl.where(taken > 0, 1.0 / tl.sqrt(inverse), 0.0)  # before the first step nothing is known
        factor = tl.where(is_known, tl.load(its + FACTOR, mask=exists, other=0.0), factor)
        delta = tl.where(taken > 0, delta, 1.0)
        delta = tl.where(is_known, tl.load(its + DELTA, mask=exists, other=1.0), delta)
        lowest = 9.5367431640625e-07 * delta  # core.update.lowest_precision
        tl.store(scales + 3 * row, factor.to(tl.float32), mask=exists)
        tl.store(scales + 3 * row + 1, delta.to(tl.float32), mask=exists)
        lowest = tl.where(lowest > 9.860761315262648e-32, lowest, 9.860761315262648e-32)
        tl.store(scales + 3 * row + 2, lowest.to(tl.float32), mask=exists)


@triton.jit
def finer_mean(mean, shown, DTYPE: tl.constexpr):
    """The mean in the state, or what was written into the float16 or bfloat16 parameter from outside."""
    return tl.where(mean.to(DTYPE).to(tl.float32) == shown, mean, shown)


@triton.jit
def add_noise(words, start, left, key, scale, sign, DTYPE, KEEP, BLOCK: tl.constexpr, IS_WHOLE: tl.constexpr):
    """m + sigma * epsilon into a block; the mean is kept where `KEEP` says."""
    param = pointer_at(tl.load(words + PARAM), start, DTYPE, IS_WHOLE)
    kept = pointer_at(tl.load(words + MEAN), start, tl.float32, IS_WHOLE)
    curvature = pointer_at(tl.load(words + CURVATURE), start, tl.float32, IS_WHOLE)
    precision = at_least(read(curvature, left, BLOCK, IS_WHOLE) + tl.load(scale + 1), tl.load(scale + 2))
    std = tl.div_rn(tl.load(scale) * sign, tl.sqrt_rn(precision))
    mean = read(param, left, BLOCK, IS_WHOLE)
    if KEEP == STATE:
        mean = finer_mean(read(kept, left, BLOCK, IS_WHOLE), mean, DTYPE)
    if KEEP != LEAN:
        write(kept, mean, left, BLOCK, IS_WHOLE)
    noise = normals(key, start // 2, BLOCK // 2)
    write(param, within_dtype(mean + std * noise, DTYPE), left, BLOCK, IS_WHOLE)


@triton.jit
def put_mean_back(words, start, left, DTYPE: tl.constexpr, BLOCK: tl.constexpr, IS_WHOLE: tl.constexpr):
    """The kept mean of a block into the parameter."""
    param = pointer_at(tl.load(words + PARAM), start, DTYPE, IS_WHOLE)
    kept = pointer_at(tl.load(words + MEAN), start, tl.float32, IS_WHOLE)
    write(param, within_dtype(read(kept, left, BLOCK, IS_WHOLE), DTYPE), left, BLOCK, IS_WHOLE)


@triton.jit(do_not_specialize=["number"])
def draw(
    rows, blocks, keys, scales, marks, number, DTYPE: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Keep the mean and write a sample.

    `scales` has three numbers for each row: sign / sqrt(lambda), delta, and the smallest h + delta.
    """
    row, words, start, left, mark = block_of(rows, blocks, BLOCK)
    key, scale = key_of(words, keys), scales + 3 * row
    if is_whole(words, left, BLOCK):
        add_noise(words, start, left, key, scale, 1.0, DTYPE, KEEP, BLOCK, True)
    else:
        add_noise(words, start, left, key, scale, 1.0, DTYPE, KEEP, BLOCK, False)
    tl.store(marks + mark, number)


@triton.jit(do_not_specialize=["number"])
def restore(
    rows, blocks, keys, scales, marks, number, DTYPE: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Put the mean back where draw `number` has written: from the copy or the state, or by subtracting the noise."""
    row, words, start, left, mark = block_of(rows, blocks, BLOCK)
    if tl.load(marks + mark) == number:
        if KEEP == LEAN:
            key, scale = key_of(words, keys), scales + 3 * row
            if is_whole(words, left, BLOCK):
                add_noise(words, start, left, key, scale, -1.0, DTYPE, LEAN, BLOCK, True)
            else:
                add_noise(words, start, left, key, scale, -1.0, DTYPE, LEAN, BLOCK, False)
        else:
            if is_whole(words, left, BLOCK):
                put_mean_back(words, start, left, DTYPE, BLOCK, True)
            else:
                put_mean_back(words, start, left, DTYPE, BLOCK, False)
        set_mark(marks + mark, -number)
