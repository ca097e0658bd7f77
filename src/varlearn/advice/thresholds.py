"""Where healthy runs end and sick ones begin.

Set on the runs of `experiments/advice`, which are not the runs that the tests judge. Each number lies between the
values of the healthy runs and of the sick ones.
"""

from __future__ import annotations

STEPS_TO_JUDGE = 100  # a shorter run, or the start of a longer one, says nothing about schedules and h
CONSTANT_SHARE = 0.5  # of the steps at the peak learning rate: no schedule
FINAL_LR = 0.5  # of the peak at the last step: no schedule
SKIPPED_SHARE = 0.02  # of the steps; a gradient scaler drops a few at its start
SKIPPED_STEPS = 10
LOSS_RISE = 1.1  # last loss over the first one
WORSE_THAN_CHANCE = 1.5  # last loss over log(classes)
ABOVE_GUESSING = 1.0  # nats of a regression's last loss above that of the mean of the targets
EXPLODED = 10.0  # largest loss over the first one, or over log(classes) where that is larger
SETTLED_STEPS = 50  # after which the noise variance of a regression has followed its errors
NLL_WORSE_THAN_CHANCE = 3.0  # NLL at the mean over log(classes)
SUM_PER_EXAMPLE = (0.3, 3.0)  # first loss over batch_size * log(classes): a sum lies within
SUM_GROWTH = 1.5  # loss of a batch over that of its halves: 1 for a mean, 2 for a sum
SMALL_BATCH = 8  # a batch below this cannot tell a sum from a mean
HESS_RUNAWAY = 100.0  # mean of h over h0 + delta
HESS_MOVED = 0.02  # mean of |h - h0| over h0 + delta
WIDE_NOISE = 10.0  # sigma over the weights
LITTLE_NOISE = 0.05  # below this a wrong sigma does no harm
NARROW_NOISE = 1e-5
DISAGREEMENT = 0.05  # nats, all training examples together; a single weight that the data decide has about 0.5
TEMPERATURE = 0.01  # fitted to validation data; below it the average is the mean
GAP = 0.02  # nats per example by which the average may be worse than the mean
GAP_ERRORS = 3.0  # standard errors
FEW_SAMPLES = 4
SAMPLE_EXCESS = 0.02  # nats per example that more samples would gain
ESS_BELOW = 0.1  # ess over n
ESS_ABOVE = 1e4
SMALL_NOISE = 1e-6  # noise variance over the squared error
INPUT_SHIFT = 0.5  # standard deviations
SPLIT_RATIO = 1.5  # NLL on test data over that on validation data
SPLIT_ERRORS = 5.0
