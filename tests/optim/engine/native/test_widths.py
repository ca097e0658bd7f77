"""The kernels are written separately for AVX-512, AVX2 and other processors: all that this processor can run agree."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.optim.engine.problems import needs_compiler
from varlearn.optim.engine.native import compilation

pytestmark = needs_compiler

REPO = Path(__file__).parents[4]
NARROWER = {"AVX2": ("-mno-avx512f",), "plain": ("-mno-avx512f", "-mno-avx2")}
SCRIPT = """
import torch
from tests.optim.engine import test_fused_engines
from tests.optim.engine.native import test_native_numbers
from tests.optim.engine.problems import Quadratics
torch.manual_seed(0)
test_native_numbers.test_the_noise_is_core_noise(2**63)
test_native_numbers.test_a_sample_is_the_loop_s(threads=1, sign=1.0)
for approximation in ("reparam", "squared_gradient", "given"):
    for keep_sample in (False, True):
        problem = Quadratics(approximation, "tensor", 0.05, (-0.25, 0.5))
        problem.compare("native", steps=20, tolerance=5e-6, keep_sample=keep_sample)
for approximation in ("reparam", "squared_gradient"):
    test_fused_engines.test_running_means_are_the_loop_s("native", approximation, keep_grad=True)
print("same")
"""


@pytest.mark.parametrize("width", NARROWER)
def test_narrower_vectors_compute_the_same(width: str, tmp_path: Path) -> None:
    compiler = [*compilation.find_compiler(), *NARROWER[width]]
    empty = tmp_path / "empty.c"
    empty.write_text("int nothing;\n", encoding="utf-8")
    known = subprocess.run([*compiler, "-c", str(empty), "-o", str(tmp_path / "empty.o")], capture_output=True)
    if known.returncode != 0:
        pytest.skip(f"{compiler[0]} does not know {' '.join(NARROWER[width])}")
    path = os.pathsep.join([str(REPO), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "CC": " ".join(compiler), "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": path}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=REPO, env=environment, capture_output=True, text=True)
    assert done.stdout == "same\n", done.stderr
