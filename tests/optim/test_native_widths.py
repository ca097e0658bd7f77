"""The native kernel has a text of its own for AVX-512, for AVX2 and for other processors: those that run here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.optim.test_native import pytestmark as needs_compiler
from varlearn.optim import native_build

pytestmark = needs_compiler

REPO = Path(__file__).parents[2]
NARROWER = {"AVX2": ("-mno-avx512f",), "plain": ("-mno-avx512f", "-mno-avx2")}
SCRIPT = """
import torch
from tests.optim import test_native, test_packed
from varlearn.optim import native
torch.manual_seed(0)
test_native.test_the_noise_is_core_noise(2**63)
test_native.test_a_sample_is_the_plain_path_s(threads=1, sign=1.0)
for approximation in ("reparam", "squared_gradient", "given"):
    test_native.compare_runs(test_native.problem(approximation, "tensor", 0.05, (-0.25, 0.5)), steps=20, tolerance=5e-6)
for approximation in ("reparam", "squared_gradient"):
    test_packed.test_fold_is_the_loops(native, approximation, count=3)
print("same")
"""


@pytest.mark.parametrize("width", NARROWER)
def test_narrower_vectors_compute_the_same(width: str, tmp_path: Path) -> None:
    compiler = [*native_build.find_compiler(), *NARROWER[width]]
    empty = tmp_path / "empty.c"
    empty.write_text("int nothing;\n", encoding="utf-8")
    known = subprocess.run([*compiler, "-c", str(empty), "-o", str(tmp_path / "empty.o")], capture_output=True)
    if known.returncode != 0:
        pytest.skip(f"{compiler[0]} does not know {' '.join(NARROWER[width])}")
    environment = {**os.environ, "CC": " ".join(compiler), "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(REPO)}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=REPO, env=environment, capture_output=True, text=True)
    assert done.stdout == "same\n", done.stderr
