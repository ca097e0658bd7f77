"""What all kernels share: find a block, read and write its elements, bound numbers without hiding a NaN."""

# pyright: reportMissingParameterType=false, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl

from varlearn.optim.engine.triton import row_layout
from varlearn.optim.engine.triton.normal_kernels import fold_in

SIZE: tl.constexpr = tl.constexpr(row_layout.SIZE)
INDEX: tl.constexpr = tl.constexpr(row_layout.INDEX)
GROUP: tl.constexpr = tl.constexpr(row_layout.GROUP)
SHIFT: tl.constexpr = tl.constexpr(row_layout.SHIFT)
ALIGNED: tl.constexpr = tl.constexpr(row_layout.ALIGNED)
MARK: tl.constexpr = tl.constexpr(row_layout.MARK)
WORDS: tl.constexpr = tl.constexpr(row_layout.WORDS)


@triton.jit
def block_of(rows, blocks, BLOCK: tl.constexpr):
    """This program's (number of the row, address of the row, first element, elements from there to the end, mark)."""
    place = blocks + 2 * tl.program_id(0).to(tl.int64)
    row = tl.load(place)
    number = tl.load(place + 1)
    words = rows + row.to(tl.int64) * WORDS
    start = number.to(tl.int64) * BLOCK
    return row, words, start, tl.load(words + SIZE) - start, tl.load(words + MARK) + number


@triton.jit
def is_whole(words, left, BLOCK: tl.constexpr):
    """Whether all elements of the block exist and can be loaded 16 bytes at a time."""
    return (left >= BLOCK) & (tl.load(words + ALIGNED) != 0)


@triton.jit
def key_of(words, keys):
    """The key of this parameter's noise, or of this rank's part of it."""
    key = tl.load(keys + tl.load(words + GROUP)).to(tl.uint64, bitcast=True)
    index = tl.load(words + INDEX).to(tl.uint64, bitcast=True)
    return fold_in(key, index) + tl.load(words + SHIFT).to(tl.uint64, bitcast=True)


@triton.jit
def pointer_at(address, start, DTYPE: tl.constexpr, IS_WHOLE: tl.constexpr):
    """A pointer to element `start` of the tensor at an address."""
    pointer = address.to(tl.pointer_type(DTYPE))
    if IS_WHOLE:
        pointer = tl.multiple_of(pointer, 16)
    return pointer + start


@triton.jit
def read(pointer, left, BLOCK: tl.constexpr, IS_WHOLE: tl.constexpr):
    """The elements of a block, in float32."""
    place = tl.arange(0, BLOCK)
    values = tl.load(pointer + place) if IS_WHOLE else tl.load(pointer + place, mask=place < left, other=0.0)
    return values.to(tl.float32)


@triton.jit
def write(pointer, values, left, BLOCK: tl.constexpr, IS_WHOLE: tl.constexpr):
    """Write the elements of a block, rounded to the dtype of the pointer."""
    place = tl.arange(0, BLOCK)
    values = values.to(pointer.dtype.element_ty)
    if IS_WHOLE:
        tl.store(pointer + place, values)
    else:
        tl.store(pointer + place, values, mask=place < left)


@triton.jit
def set_mark(place, value):
    """Replace the mark of a block. All threads read the old one, and one thread writes, so it waits for the others."""
    tl.debug_barrier()
    tl.store(place, value)


@triton.jit
def at_least(values, low):
    """The larger one; NaN stays NaN."""
    return tl.where(values < low, low, values)


@triton.jit
def bounded(values, low, high):
    """Values between two bounds; NaN stays NaN."""
    values = tl.where(values < low, low, values)
    return tl.where(values > high, high, values)


@triton.jit
def within_dtype(values, DTYPE: tl.constexpr):
    """Values bounded to what a parameter of the dtype can hold."""
    if tl.float16 == DTYPE:
        return bounded(values, -65504.0, 65504.0)
    elif tl.bfloat16 == DTYPE:
        return bounded(values, -3.3895313892515355e38, 3.3895313892515355e38)
    else:
        return values


@triton.jit
def power(base, exponent):
    """base^exponent in float64, exponent < 2^31, by repeated squaring."""
    result = tl.full(exponent.shape, 1.0, tl.float64)
    for _ in range(31):
        result = tl.where((exponent & 1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> 1
    return result
