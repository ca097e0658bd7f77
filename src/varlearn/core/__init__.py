"""Algorithm 1 of the paper and the noise it draws, as pure functions on tensors."""
