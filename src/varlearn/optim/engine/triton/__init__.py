"""The engine of accelerators: kernels in Triton that compute whole lists of parameters, one launch for each kind."""
