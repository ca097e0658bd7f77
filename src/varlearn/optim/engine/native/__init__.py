"""The engine of float32 parameters on a CPU: kernels in C, compiled on first use."""
