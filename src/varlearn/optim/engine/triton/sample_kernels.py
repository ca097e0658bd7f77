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
    read,
    within_dtype,
    write,
)
from varlearn.optim.engine.triton.normal_kernels import normals

PARAM: tl.constexpr = tl.constexpr(row_layout.PARAM)
MEAN: tl.constexpr = tl.constexpr(row_layout.MEAN)
CURVATURE: tl.constexpr = tl.constexpr(row_layout.CURVATURE)
LEAN: tl.constexpr = tl.constexpr(row_layout.LEAN)
COPY: tl.constexpr = tl.constexpr(row_layout.COPY)
STATE: tl.constexpr = tl.constexpr(row_layout.STATE)


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
        tl.store(marks + mark, -number)
