"""Samples in the weights: which parameters are sampled, how the mean is kept, averages over samples."""
