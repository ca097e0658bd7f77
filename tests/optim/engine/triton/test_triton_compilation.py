"""The Triton kernels compiled for devices that are not here: no spills, wide loads, no fused products, few bytes."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.optim.engine.problems import needs_triton

pytestmark = needs_triton

REPO = Path(__file__).parents[4]
TARGETS = ["sm_80", "sm_90", "sm_100", "gfx942"]
QUICK = ("draw", "restore", "step", "vadamw", "look")
ONCE = ("prepare", "make keys", "make scales")  # in one program, for all parameters
REST = (
    "lean draw", "lean restore", "bfloat16 draw", "bfloat16 step", "bfloat16 vadamw", "float16 step",
    "squared step", "given step", "fold",
)  # fmt: skip
# Bytes for each weight. A step reads gradient, h, momentum and mean, and m0 if it is a tensor.
BYTES = {
    "draw": 16, "step": 32, "vadamw": 28, "look": 4, "restore": 8, "lean draw": 12, "lean restore": 12,
    "bfloat16 draw": 16, "bfloat16 step": 34, "bfloat16 vadamw": 30, "float16 step": 34, "squared step": 32,
    "given step": 36, "fold": 28,
}  # fmt: skip
_SPECIAL = {"sm_80": ("fused", "crowded", "unordered"), "gfx942": ("fused",)}


@functools.cache
def facts(target: str, names: tuple[str, ...]) -> dict[str, Any]:
    """What the compiler made of some kernels, found out by another process: the interpreter is off there."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(REPO), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "tests.optim.engine.triton.ahead_of_time", target, *names]
    done = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compiled(target: str) -> dict[str, Any]:
    if target == "sm_100":
        import triton

        if not (Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas-blackwell").exists():
            pytest.skip(f"Triton {triton.__version__} does not know sm_100")
    return facts(target, (*QUICK, *_SPECIAL.get(target, ())))


def check(found: dict[str, Any]) -> None:
    for name, fact in found.items():
        assert fact["spills"] == 0, name
        assert fact["fused"] == 0, name
        assert fact["rough"] == 0, name
        assert fact["races"] == 0, name
        assert fact["bytes"] == BYTES[name], name
        # Each thread has four elements of a block, and takes four float32 at a time.
        assert fact["vector_loads"] >= fact["loads"], name
        assert fact["vector_stores"] >= fact["stores"], name


@pytest.mark.parametrize("target", TARGETS)
def test_the_common_kernels_are_lean(target: str) -> None:
    found = compiled(target)
    check({name: found[name] for name in QUICK})
    words = {name: found[name]["bytes"] / 4 for name in QUICK}
    assert words["draw"] <= 4
    assert words["step"] <= 9


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_all_kernels_are_lean(target: str) -> None:
    compiled(target)
    check(facts(target, REST))
    for name, fact in facts(target, ONCE).items():
        assert fact["spills"] == 0, name
        assert fact["races"] == 0, name


@pytest.mark.parametrize(("target", "what", "fact"), [
    ("sm_80", "fused", "fused"), ("gfx942", "fused", "fused"), ("sm_80", "crowded", "spills"),
    ("sm_80", "unordered", "races"),
])  # fmt: skip
def test_what_is_looked_for_can_be_found(target: str, what: str, fact: str) -> None:
    """With fusing allowed there are fused products, with 24 registers spills, and without barriers races."""
    found = compiled(target)
    assert found[what][fact] > 0
    with pytest.raises(AssertionError):
        check({"step": found[what]})


def test_a_kernel_of_another_traffic_is_noticed() -> None:
    """The bytes are counted and not declared: a restore for a draw fails."""
    found = compiled("sm_80")
    with pytest.raises(AssertionError):
        check({"draw": found["look"]})
