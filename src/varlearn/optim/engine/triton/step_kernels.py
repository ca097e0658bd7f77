"""What the steps of all rules share: the mean of a block, the look for NaN, and what a step needs to know about it."""

# pyright: reportMissingParameterType=false, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl

from varlearn.optim.engine.triton import row_layout
from varlearn.optim.engine.triton.block_kernels import block_of, is_whole, pointer_at, read, within_dtype, write

SIZE: tl.constexpr = tl.constexpr(row_layout.SIZE)
PARAM: tl.constexpr = tl.constexpr(row_layout.PARAM)
MEAN: tl.constexpr = tl.constexpr(row_layout.MEAN)
GRAD: tl.constexpr = tl.constexpr(row_layout.GRAD)
ESTIMATE: tl.constexpr = tl.constexpr(row_layout.ESTIMATE)
STEP: tl.constexpr = tl.constexpr(row_layout.STEP)
WORDS: tl.constexpr = tl.constexpr(row_layout.WORDS)
COPY: tl.constexpr = tl.constexpr(row_layout.COPY)
STATE: tl.constexpr = tl.constexpr(row_layout.STATE)


@triton.jit
def mean_of(
    words, start, left, is_in, DTYPE: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr, IS_WHOLE: tl.constexpr
):  # fmt: skip
    """The mean of a block, also while a sample is in the weights."""
    shown_at, kept_at = tl.load(words + PARAM), tl.load(words + MEAN)
    if KEEP == STATE:
        shown = read(pointer_at(shown_at, start, DTYPE, IS_WHOLE), left, BLOCK, IS_WHOLE)
        mean = read(pointer_at(kept_at, start, tl.float32, IS_WHOLE), left, BLOCK, IS_WHOLE)
        mean = tl.where(is_in | (mean.to(DTYPE).to(tl.float32) == shown), mean, shown)
    elif KEEP == COPY:
        address = tl.where(is_in, kept_at, shown_at)
        mean = read(pointer_at(address, start, tl.float32, IS_WHOLE), left, BLOCK, IS_WHOLE)
    else:
        mean = read(pointer_at(shown_at, start, tl.float32, IS_WHOLE), left, BLOCK, IS_WHOLE)
    return mean


@triton.jit
def write_mean(
    words, start, mean, left, DTYPE: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr, IS_WHOLE: tl.constexpr
):  # fmt: skip
    """The new mean of a block, into the parameter and, if there is one, into the finer mean."""
    mean = within_dtype(mean, DTYPE)
    if KEEP == STATE:
        write(pointer_at(tl.load(words + MEAN), start, tl.float32, IS_WHOLE), mean, left, BLOCK, IS_WHOLE)
    write(pointer_at(tl.load(words + PARAM), start, DTYPE, IS_WHOLE), mean, left, BLOCK, IS_WHOLE)


@triton.jit
def look(address, start, left, found, DTYPE: tl.constexpr, BLOCK: tl.constexpr, IS_WHOLE: tl.constexpr):
    """Set `found` if a number of a block is NaN or infinite: an exponent of ones."""
    bits = read(pointer_at(address, start, DTYPE, IS_WHOLE), left, BLOCK, IS_WHOLE).to(tl.int32, bitcast=True)
    if tl.max(((bits & 0x7F800000) == 0x7F800000).to(tl.int32), 0) != 0:
        tl.store(found, 1)


@triton.jit
def look_for_nonfinite(
    rows, blocks, found, GRAD_DTYPE: tl.constexpr, IS_GIVEN: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Set `found` if a gradient or an hhat has a number that is NaN or infinite."""
    _, words, start, left, _ = block_of(rows, blocks, BLOCK)
    if left > 0:
        if is_whole(words, left, BLOCK):
            look(tl.load(words + GRAD), start, left, found, GRAD_DTYPE, BLOCK, True)
            if IS_GIVEN:
                look(tl.load(words + ESTIMATE), start, left, found, tl.float32, BLOCK, True)
        else:
            look(tl.load(words + GRAD), start, left, found, GRAD_DTYPE, BLOCK, False)
            if IS_GIVEN:
                look(tl.load(words + ESTIMATE), start, left, found, tl.float32, BLOCK, False)


@triton.jit
def power(base, exponent):
    """base^exponent in float64, exponent < 2^31, by repeated squaring."""
    result = tl.full(exponent.shape, 1.0, tl.float64)
    for _ in range(31):
        result = tl.where((exponent & 1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> 1
    return result


@triton.jit(do_not_specialize=["count"])
def prepare(rows, count, debiases, clock, dropped, found, overflow, scale, BLOCK: tl.constexpr):
    """What a step must know and only the device can: whether it is dropped, how many were before, and the loss scale.

    Args:
        rows: one for each parameter.
        count: of rows.
        debiases: float64, two for each row: 1 - beta1^t as the host has it, and beta1, or 0 where it is 1.
        clock: float32; receives 1 / loss scale, and for each row 1 / (1 - beta1^t) at the true t.
        dropped: int32; for each row how many of its steps were dropped since the host asked, then the number of all.
        found: receives 1 if the step is to be dropped.
        overflow: GradScaler's flag, or 0.
        scale: GradScaler's loss scale, or 1.
        BLOCK: rows of a program.
    """
    is_dropped = (tl.load(found) != 0) | (tl.load(overflow) > 0.0)
    for first in range(0, count, BLOCK):
        row = first + tl.arange(0, BLOCK)
        exists = row < count
        takes_part = tl.load(rows + row * WORDS + SIZE, mask=exists, other=0) != 0
        before = tl.load(dropped + row, mask=exists, other=0)
        debias = tl.load(debiases + 2 * row, mask=exists, other=1.0)
        base = tl.load(debiases + 2 * row + 1, mask=exists, other=0.0)
        steps = tl.load(rows + row * WORDS + STEP, mask=exists, other=0).to(tl.int32) - before
        debias = tl.where(takes_part & (before > 0), 1.0 - power(base, steps), debias)
        tl.store(clock + 1 + row, (1.0 / debias).to(tl.float32), mask=exists)
        tl.store(dropped + row, before + (takes_part & is_dropped).to(tl.int32), mask=exists)
    tl.store(clock, tl.div_rn(1.0, tl.load(scale)))
    tl.store(dropped + count, tl.load(dropped + count) + is_dropped.to(tl.int32))
    tl.debug_barrier()
    tl.store(found, is_dropped.to(tl.int32))
