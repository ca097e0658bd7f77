"""Peak memory of an optimizer, measured in a fresh process: `python -m tests.optim.peak_memory adamw|fast|lean`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROOT = Path(__file__).parents[2]
TENSORS, NUMEL = 8, 1 << 20


def peak_memory(kind: str) -> float:
    """In vectors of the parameters' size, parameters and gradients included."""
    # The malloc settings that make training fast keep freed memory, and would count it as used.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "tests.optim.peak_memory", kind]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def make(kind: str, params: list[Tensor]) -> Any:
    if kind == "adamw":
        return torch.optim.AdamW(params)
    from varlearn import IVON

    return IVON(params, lr=0.1, ess=100.0, memory=kind)  # type: ignore[arg-type]


def train(kind: str, numel: int) -> None:
    """Some steps of the usual loop, in which zero_grad stands just before backward."""
    params = [torch.zeros(numel, requires_grad=True) for _ in range(TENSORS)]
    opt = make(kind, params)

    def give_gradients() -> None:
        opt.zero_grad()
        for param in params:
            param.grad = torch.ones_like(param)

    for _ in range(2):
        if kind == "adamw":
            give_gradients()
        else:
            with opt.sampled_params(train=True):
                give_gradients()
        opt.step()


def status_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])


if __name__ == "__main__":
    train(sys.argv[1], numel=8)  # loads libraries
    before = status_bytes("VmRSS")
    train(sys.argv[1], NUMEL)
    print((status_bytes("VmHWM") - before) / (4 * TENSORS * NUMEL))
