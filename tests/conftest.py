"""Settings that every test shares: CPU instructions, threads, seeds and Hypothesis profiles."""

import os

# Before torch is imported: where a virtual machine reports AMX and forbids it, bf16 matmuls die with SIGILL.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Before Triton is imported: on CPU tensors its kernels run in the interpreter. Nothing else here uses Triton.
os.environ.setdefault("TRITON_INTERPRET", "1")

IN_XDIST_WORKER = "PYTEST_XDIST_WORKER" in os.environ
if IN_XDIST_WORKER:
    # Workers share the cores, so each, and each process it starts, keeps to one.
    os.environ["OMP_NUM_THREADS"] = "1"

import signal
from collections.abc import Iterator

import hypothesis
import pytest
import torch

if IN_XDIST_WORKER:
    torch.set_num_threads(1)

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell leaves it for what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the first call of a torch operator can take a hundred times as long as the next.
hypothesis.settings.register_profile("local", deadline=None, max_examples=50)
hypothesis.settings.register_profile(
    "ci", deadline=None, max_examples=50, derandomize=True, database=None, print_blob=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def _torch_globals() -> Iterator[None]:
    """Seed torch before each test, and put back the global settings that a test may change."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(dtype)
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    if torch.are_deterministic_algorithms_enabled() != deterministic:
        torch.use_deterministic_algorithms(deterministic)  # imports inductor, seconds: only where needed
