"""What the steps of all rules share: the mean of a block, the look for NaN, and what a step needs to know about it."""

# pyright: reportMissingParameterType=false, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl

from varlearn.optim.engine.triton import row_layout
from varlearn.optim.engine.triton.block_kernels import (
    block_of,
    is_whole,
    pointer_at,
    power,
    read,
    within_dtype,
    write,
)

SIZE: tl.constexpr = tl.constexpr(row_layout.SIZE)
PARAM: tl.constexpr = tl.constexpr(row_layout.PARAM)
MEAN: tl.constexpr = tl.constexpr(row_layout.MEAN)
GRAD: tl.constexpr = tl.constexpr(row_layout.GRAD)
ESTIMATE: tl.constexpr = tl.constexpr(row_layout.ESTIMATE)
STEP: tl.constexpr = tl.constexpr(row_layout.STEP)
HOST_STEP: tl.constexpr = tl.constexpr(row_layout.HOST_STEP)
WORDS: tl.constexpr = tl.constexpr(row_layout.WORDS)
FIRST_DEBIAS: tl.constexpr = tl.constexpr(row_layout.FIRST_DEBIAS)
BETA1: tl.constexpr = tl.constexpr(row_layout.BETA1)
SECOND_DEBIAS: tl.constexpr = tl.constexpr(row_layout.SECOND_DEBIAS)
BETA2: tl.constexpr = tl.constexpr(row_layout.BETA2)
MAX_NORM: tl.constexpr = tl.constexpr(row_layout.MAX_NORM)
LR: tl.constexpr = tl.constexpr(row_layout.LR)
DECAY: tl.constexpr = tl.constexpr(row_layout.DECAY)
FACTS: tl.constexpr = tl.constexpr(row_layout.FACTS)
LR_AT: tl.constexpr = tl.constexpr(row_layout.LR_AT)
RATE: tl.constexpr = tl.constexpr(row_layout.RATE)
UNBIAS: tl.constexpr = tl.constexpr(row_layout.UNBIAS)
STEP_SIZE: tl.constexpr = tl.constexpr(row_layout.STEP_SIZE)
ROOT_UNBIAS: tl.constexpr = tl.constexpr(row_layout.ROOT_UNBIAS)
KEEP_WEIGHT: tl.constexpr = tl.constexpr(row_layout.KEEP_WEIGHT)
CLIP: tl.constexpr = tl.constexpr(row_layout.CLIP)
CLOCK: tl.constexpr = tl.constexpr(row_layout.CLOCK)
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


@triton.jit(do_not_specialize=["count", "is_captured"])
def prepare(
    rows, count, facts, clock, drift, found, overflow, scale, norm, unclip, is_captured, BLOCK: tl.constexpr
):  # fmt: skip
    """What a step must know and only the device can: whether it is dropped, its number, the loss scale, clipping.

    Args:
        rows: one for each parameter.
        count: of rows.
        facts: float64, `row_layout.FACTS` of each row, as the host knows them.
        clock: float32; receives 1 / loss scale, what undoes the user's clipping, and for each row the scalars of its
            step that depend on its number, the learning rate and the norm.
        drift: int32; for each row by how much the number of its step differs from the one in the table: one less for
            each dropped step, and one more for each step once a graph was captured. Then the number of dropped steps.
        found: receives 1 if the step is to be dropped.
        overflow: GradScaler's flag, or 0.
        scale: GradScaler's loss scale, or 1.
        norm: of all gradients, or 0.
        unclip: what undoes the user's clipping, or 1.
        is_captured: 1 if a CUDA graph has captured a step, so that the number in the table stays; else 0. See
            `sample_kernels.make_keys`.
        BLOCK: rows of a program.
    """
    is_dropped = (tl.load(found) != 0) | (tl.load(overflow) > 0.0)
    unscale = tl.div_rn(1.0, tl.load(scale))
    total = (tl.load(norm) * unscale).to(tl.float64) + 1e-6
    for first in range(0, count, BLOCK):
        row = first + tl.arange(0, BLOCK)
        exists = row < count
        its, out, words = facts + row * FACTS, clock + 2 + row * CLOCK, rows + row * WORDS
        takes_part = tl.load(words + SIZE, mask=exists, other=0) != 0
        before = tl.load(drift + row, mask=exists, other=0)
        steps = tl.load(words + STEP, mask=exists, other=0).to(tl.int32) + before
        is_known = steps == tl.load(words + HOST_STEP, mask=exists, other=0).to(tl.int32)
        # The host's own numbers, so that all engines agree to the last bit, unless steps were dropped or replayed.
        debias = 1.0 - power(tl.load(its + BETA1, mask=exists, other=0.0), steps)
        debias = tl.where(is_known, tl.load(its + FIRST_DEBIAS, mask=exists, other=1.0), debias)
        second = 1.0 - power(tl.load(its + BETA2, mask=exists, other=0.0), steps)
        second = tl.where(is_known, tl.load(its + SECOND_DEBIAS, mask=exists, other=1.0), second)
        lr = tl.load(its + LR, mask=exists, other=0.0)
        lr_at = tl.load(words + LR_AT, mask=exists, other=0)
        on_device = tl.load(lr_at.to(tl.pointer_type(tl.float32)), mask=exists & (lr_at != 0), other=1.0)
        lr = lr * on_device.to(tl.float64)
        # A row that takes no part has no number of its own: its scalars are not read.
        debias, second = tl.where(takes_part, debias, 1.0), tl.where(takes_part, second, 1.0)
        tl.store(out + RATE, lr.to(tl.float32), mask=exists)
        tl.store(out + UNBIAS, (1.0 / debias).to(tl.float32), mask=exists)
        tl.store(out + STEP_SIZE, (lr / debias).to(tl.float32), mask=exists)
        tl.store(out + ROOT_UNBIAS, tl.sqrt(1.0 / second).to(tl.float32), mask=exists)
        keep = 1.0 - lr * tl.load(its + DECAY, mask=exists, other=0.0)
        tl.store(out + KEEP_WEIGHT, keep.to(tl.float32), mask=exists)
        clip = tl.load(its + MAX_NORM, mask=exists, other=0.0) / total
        tl.store(out + CLIP, tl.where(clip < 1.0, clip, 1.0).to(tl.float32), mask=exists)
        after = before - (takes_part & is_dropped).to(tl.int32) + is_captured * takes_part.to(tl.int32)
        tl.debug_barrier()  # several threads read an element, and one of them replaces it
        tl.store(drift + row, after, mask=exists)
    tl.store(clock, unscale)
    tl.store(clock + 1, tl.load(unclip))
    dropped = tl.load(drift + count) + is_dropped.to(tl.int32)
    tl.debug_barrier()  # all threads read, and one writes
    tl.store(drift + count, dropped)
    tl.store(found, is_dropped.to(tl.int32))
