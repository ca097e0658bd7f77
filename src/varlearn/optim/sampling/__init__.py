"""Samples in the weights: which parameters take part, the mean kept safe, averages over samples."""
