"""Variational AdamW: AdamW's step. Twin of core/vadamw.py and native/vadamw.h."""

# pyright: reportMissingParameterType=false, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl

from varlearn.optim.engine.triton import row_layout
from varlearn.optim.engine.triton.block_kernels import block_of, is_whole, pointer_at, read, set_mark, write
from varlearn.optim.engine.triton.step_kernels import mean_of, write_mean

FIRST: tl.constexpr = tl.constexpr(row_layout.FIRST)
CURVATURE: tl.constexpr = tl.constexpr(row_layout.CURVATURE)
GRAD: tl.constexpr = tl.constexpr(row_layout.GRAD)
SETTINGS: tl.constexpr = tl.constexpr(row_layout.SETTINGS)

# The scalars of a step, as `VadamwHyper` of native/scalars.py has them.
GRAD_FACTOR: tl.constexpr = tl.constexpr(0)
RAW_FACTOR: tl.constexpr = tl.constexpr(1)
GRAD_WEIGHT: tl.constexpr = tl.constexpr(2)
BETA2: tl.constexpr = tl.constexpr(3)
SQUARE_WEIGHT: tl.constexpr = tl.constexpr(4)
EPS: tl.constexpr = tl.constexpr(8)
SCALARS: tl.constexpr = tl.constexpr(9)

# Of the clock of a row.
CLOCK: tl.constexpr = tl.constexpr(row_layout.CLOCK)
STEP_SIZE: tl.constexpr = tl.constexpr(row_layout.STEP_SIZE)
ROOT_UNBIAS: tl.constexpr = tl.constexpr(row_layout.ROOT_UNBIAS)
KEEP_WEIGHT: tl.constexpr = tl.constexpr(row_layout.KEEP_WEIGHT)
CLIP: tl.constexpr = tl.constexpr(row_layout.CLIP)


@triton.jit
def step_block(
    words, start, left, s, clock, unscale, unclip, is_in,
    DTYPE: tl.constexpr, GRAD_DTYPE: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr, IS_WHOLE: tl.constexpr,
):  # fmt: skip
    """AdamW's step for a block."""
    grad = read(pointer_at(tl.load(words + GRAD), start, GRAD_DTYPE, IS_WHOLE), left, BLOCK, IS_WHOLE) * unscale
    raw = grad * tl.load(s + RAW_FACTOR) * unclip
    average_at = pointer_at(tl.load(words + FIRST), start, tl.float32, IS_WHOLE)
    average = read(average_at, left, BLOCK, IS_WHOLE)
    average = average + tl.load(s + GRAD_WEIGHT) * (grad * tl.load(s + GRAD_FACTOR) * tl.load(clock + CLIP) - average)
    write(average_at, average, left, BLOCK, IS_WHOLE)
    square_at = pointer_at(tl.load(words + CURVATURE), start, tl.float32, IS_WHOLE)
    square = tl.load(s + BETA2) * read(square_at, left, BLOCK, IS_WHOLE) + tl.load(s + SQUARE_WEIGHT) * raw * raw
    write(square_at, square, left, BLOCK, IS_WHOLE)
    denominator = tl.sqrt_rn(square) * tl.load(clock + ROOT_UNBIAS) + tl.load(s + EPS)
    mean = tl.load(clock + KEEP_WEIGHT) * mean_of(words, start, left, is_in, DTYPE, KEEP, BLOCK, IS_WHOLE)
    mean = mean - tl.load(clock + STEP_SIZE) * tl.div_rn(average, denominator)
    write_mean(words, start, mean, left, DTYPE, KEEP, BLOCK, IS_WHOLE)


@triton.jit(do_not_specialize=["number"])
def step(
    rows, blocks, keys, scalars, clock, found, marks, number,
    DTYPE: tl.constexpr, GRAD_DTYPE: tl.constexpr, KEEP: tl.constexpr, HOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Update mean and moments, unless a number that is not finite was found. A step needs no noise."""
    row, words, start, left, mark = block_of(rows, blocks, BLOCK)
    if (tl.load(found) == 0) & (left > 0):
        s, its = scalars + tl.load(words + SETTINGS) * SCALARS, clock + 2 + row * CLOCK
        unscale, unclip = tl.load(clock), tl.load(clock + 1)
        is_in = tl.load(marks + mark) == number
        if is_whole(words, left, BLOCK):
            step_block(
                words, start, left, s, its, unscale, unclip, is_in, DTYPE, GRAD_DTYPE, KEEP, BLOCK, True
            )  # fmt: skip
        else:
            step_block(
                words, start, left, s, its, unscale, unclip, is_in, DTYPE, GRAD_DTYPE, KEEP, BLOCK, False
            )  # fmt: skip
        set_mark(marks + mark, -number)
