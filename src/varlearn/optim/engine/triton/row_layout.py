"""The tables that the kernels read: one row of 64-bit words for each parameter, and one pair of words for each block.

A launch has one program for each block of `BLOCK` elements. A program finds its parameter and its place in it in the
table of blocks, and everything else in the parameter's row.
"""

from __future__ import annotations

from collections.abc import Sequence

# Elements of a block, and the threads that compute it: four elements for each, one load of 16 bytes. With eight, a step
# of IVON has too few registers on an H100.
BLOCK, THREADS = 1024, 256

# The words of a row. Addresses are 0 where there is no tensor.
SIZE = 0  # elements; 0 where the parameter takes no part
PARAM = 1
MEAN = 2  # the copy of the mean, or the finer mean of a float16 or bfloat16 parameter
FIRST = 3  # the first state tensor: momentum, exp_avg
CURVATURE = 4  # the second one: hess, exp_avg_sq
GRAD = 5
ESTIMATE = 6  # hhat, where it is given
PRIOR = 7
INDEX = 8  # folded into the key of the draw
GROUP = 9  # which key
SHIFT = 10  # added to the key: where this rank's part of a sharded parameter begins
SETTINGS = 11  # which scalars
ALIGNED = 12  # 1 if every address is a multiple of 16
MARK = 13  # of the parameter's first block
HOST_STEP = 14  # number of the step, as the host knows it
STEP = 15  # the same without what the host knows of the device's drift
LR_AT = 16  # the learning rate, where it is a tensor on the device
WORDS = 17

# In a fold three words mean something else.
ESTIMATE_MEAN, GRAD_MEAN, CAPTURED = PARAM, MEAN, FIRST

# What `prepare` needs to know of a row, float64. Both debias are 1 - beta^t as the host knows t; beta is 0 without one.
FIRST_DEBIAS, BETA1, SECOND_DEBIAS, BETA2, MAX_NORM, LR, DECAY = range(7)
FACTS = 7

# What `prepare_draw` needs to know of a group, int64: key of seed and stream, replica, number of the sample.
BASE, REPLICA, DRAW = range(3)
ORIGIN = 3

# And of a row, float64: the steps taken as in `STEP` and as the host knows them, its scale, and what makes another:
# lambda = max(LAMBDA_END, LAMBDA_START LAMBDA_RATIO^t), B, beta2 and s.
TAKEN, HOST_TAKEN, FACTOR, DELTA, LAMBDA_START, LAMBDA_RATIO, LAMBDA_END, BATCH, SQUARE_BETA, PRIOR_STD = range(10)
SCALING = 10

# What `prepare` makes of it for the step, float32.
RATE, UNBIAS, STEP_SIZE, ROOT_UNBIAS, KEEP_WEIGHT, CLIP = range(6)
CLOCK = 6

# Where the mean is while a sample is in the weights: nowhere, in a copy, in the state.
LEAN, COPY, STATE = 0, 1, 2

# How hhat is made.
REPARAM, SQUARED_GRADIENT, GIVEN = 0, 1, 2

_ADDRESSES = (PARAM, MEAN, FIRST, CURVATURE, GRAD, ESTIMATE, PRIOR)


def are_aligned(row: Sequence[int]) -> int:
    """1 if every address of a row is a multiple of 16 bytes, which a thread can load at a time; else 0.

    >>> are_aligned([4096, 64, 128, 0, 0, 0, 0, 0]), are_aligned([4096, 64, 132, 0, 0, 0, 0, 0])
    (1, 0)
    """
    return int(not any([row[word] % 16 for word in _ADDRESSES]))
