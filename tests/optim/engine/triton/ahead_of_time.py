"""Compile the Triton kernels for a device that is not here, and print what the compiler made of them, as JSON.

Run as `python -m tests.optim.engine.triton.ahead_of_time TARGET KERNEL ...` without TRITON_INTERPRET: the interpreter
replaces the compiler. A target is sm_80, sm_90, sm_100 or gfx942. The word "fused" instead of a kernel lets the
compiler fuse products and sums, "crowded" gives it few registers, and "unordered" leaves out the barriers, so that the
tests can see what they look for.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from varlearn.optim.engine.triton import ivon_kernels, sample_kernels, step_kernels, vadamw_kernels
from varlearn.optim.engine.triton.launching import options
from varlearn.optim.engine.triton.row_layout import BLOCK, COPY, GIVEN, LEAN, REPARAM, SQUARED_GRADIENT, STATE

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}

_TABLES = {"rows": "*i64", "blocks": "*i32"}
_SAMPLE = {**_TABLES, "keys": "*i64", "scales": "*fp32", "marks": "*i32", "number": "i32"}
_STEP = {
    **_TABLES, "keys": "*i64", "scalars": "*fp32", "clock": "*fp32", "found": "*i32", "marks": "*i32", "number": "i32",
}  # fmt: skip
_FOLD = {**_TABLES, "keys": "*i64", "scalars": "*fp32"}
_PREPARE = {
    "rows": "*i64", "count": "i32", "facts": "*fp64", "clock": "*fp32", "drift": "*i32", "found": "*i32",
    "overflow": "*fp32", "scale": "*fp32", "norm": "*fp32", "unclip": "*fp32", "is_captured": "i32",
}  # fmt: skip
_KEYS = {"origins": "*i64", "draws": "*i64", "keys": "*i64", "groups": "i32", "is_captured": "i32"}
_SCALES = {"facts": "*fp64", "drift": "*i32", "scales": "*fp32", "count": "i32"}
_SHARED = r"(?:!tt\.ptr|tensor<128x!tt\.ptr)"  # pointers that several threads have: to one number, or in one program
ONCE = ("prepare", "make keys", "make scales")  # in one program
F32, BF16, F16 = tl.float32, tl.bfloat16, tl.float16


def _step(dtype: Any, grad: Any, keep: int, how: int) -> dict[str, Any]:
    return {"DTYPE": dtype, "GRAD_DTYPE": grad, "KEEP": keep, "HOW": how}


KERNELS: dict[str, tuple[Any, dict[str, str], dict[str, Any]]] = {
    "draw": (sample_kernels.draw, _SAMPLE, {"DTYPE": F32, "KEEP": COPY}),
    "step": (ivon_kernels.step, _STEP, _step(F32, F32, COPY, REPARAM)),
    "vadamw": (vadamw_kernels.step, _STEP, _step(F32, F32, COPY, REPARAM)),
    "look": (step_kernels.look_for_nonfinite, {**_TABLES, "found": "*i32"}, {"GRAD_DTYPE": F32, "IS_GIVEN": False}),
    "restore": (sample_kernels.restore, _SAMPLE, {"DTYPE": F32, "KEEP": COPY}),
    "lean draw": (sample_kernels.draw, _SAMPLE, {"DTYPE": F32, "KEEP": LEAN}),
    "lean restore": (sample_kernels.restore, _SAMPLE, {"DTYPE": F32, "KEEP": LEAN}),
    "bfloat16 draw": (sample_kernels.draw, _SAMPLE, {"DTYPE": BF16, "KEEP": STATE}),
    "bfloat16 step": (ivon_kernels.step, _STEP, _step(BF16, BF16, STATE, REPARAM)),
    "bfloat16 vadamw": (vadamw_kernels.step, _STEP, _step(BF16, BF16, STATE, REPARAM)),
    "float16 step": (ivon_kernels.step, _STEP, _step(F16, F16, STATE, REPARAM)),
    "squared step": (ivon_kernels.step, _STEP, _step(F32, F32, COPY, SQUARED_GRADIENT)),
    "given step": (ivon_kernels.step, _STEP, _step(F32, F32, COPY, GIVEN)),
    "fold": (ivon_kernels.fold, _FOLD, {"GRAD_DTYPE": F32, "HOW": REPARAM}),
    "prepare": (step_kernels.prepare, _PREPARE, {}),
    "make keys": (sample_kernels.make_keys, _KEYS, {}),
    "make scales": (sample_kernels.make_scales, _SCALES, {}),
}


def compiled(target: str, name: str, **changes: Any) -> Any:
    """What Triton makes of a kernel: its intermediate representations and the code of the device, as text."""
    kernel, signature, constants = KERNELS[name]
    constants = {**constants, "BLOCK": 128 if name in ONCE else BLOCK}
    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    values = {(kernel.arg_names.index(key),): value for key, value in constants.items()}
    # As at a launch: tables begin at multiples of 16 bytes.
    aligned = {
        (kernel.arg_names.index(key),): [["tt.divisibility", 16]] for key, kind in signature.items() if kind[0] == "*"
    }
    usual = options(TARGETS[target].warp_size)
    source = ASTSource(kernel, signature=types, constexprs=values, attrs=aligned)
    return triton.compile(source, target=TARGETS[target], options={**usual, **changes})


def facts(target: str, name: str, **changes: Any) -> dict[str, Any]:
    """What the tests look at."""
    result = compiled(target, name, **changes)
    text = result.asm["ptx" if target.startswith("sm") else "amdgcn"]
    return {
        **(_of_ptx(text, target) if target.startswith("sm") else _of_amdgcn(text)),
        **_traffic(result.asm["ttir"]),
    }


def _of_ptx(ptx: str, target: str) -> dict[str, Any]:
    tool = get_ptxas(int(target.removeprefix("sm_"))).path
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx, encoding="utf-8")
        named = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
        assert named is not None
        command = [str(tool), "-v", f"--gpu-name={named[1]}", str(source), "-o", str(source.with_suffix(".cubin"))]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    registers = re.search(r"Used (\d+) registers", said)
    assert spills is not None, said
    assert registers is not None, said
    return {
        "spills": int(spills[1]) + int(spills[2]),
        "registers": int(registers[1]),
        "vector_loads": len(re.findall(r"\bld\.global\.v4\.b32", ptx)),
        "vector_stores": len(re.findall(r"\bst\.global\.v4\.b32", ptx)),
        # Without ".rn", ptxas may fuse a product and a sum.
        "fused": len(re.findall(r"\bfma\.|\b(?:mul|add|sub)\.f32", ptx)),
        "rough": len(re.findall(r"\.approx|\.full\.f32|\.ftz", ptx)),
    }


def _of_amdgcn(text: str) -> dict[str, Any]:
    counts = [int(count) for count in re.findall(r"\.[vs]gpr_spill_count:\s+(\d+)", text)]
    registers = re.search(r"\.vgpr_count:\s+(\d+)", text)
    assert counts
    assert registers is not None

    def count(operation: str) -> int:
        return len(re.findall(rf"^\s*v_{operation}(?:_e32|_e64)?\s", text, re.MULTILINE))

    return {
        "spills": sum(counts),
        "registers": int(registers[1]),
        "vector_loads": len(re.findall(r"\b(?:global|buffer|flat)_load_dwordx4", text)),
        "vector_stores": len(re.findall(r"\b(?:global|buffer|flat)_store_dwordx4", text)),
        # A square root is made with two fused operations, a quotient with five; there may be no others.
        "fused": count(r"(?:pk_)?fma\w*") - 2 * count(r"sqrt_f32") - 5 * count(r"div_fixup_f32"),
        "rough": count(r"(?:rsq|log|exp|sin|cos)_f32") + count(r"rcp_f32") - count(r"div_fixup_f32"),
    }


def _traffic(ttir: str) -> dict[str, Any]:
    """Bytes that a program reads and writes for each element of a whole block, from the operations without a mask."""
    bits = {"f32": 32, "bf16": 16, "f16": 16}
    load = re.findall(rf"= tt\.load %\w+ : tensor<{BLOCK}x!tt\.ptr<(\w+)>>", ttir)
    store = re.findall(rf"tt\.store %\w+, %\w+ : tensor<{BLOCK}x!tt\.ptr<(\w+)>>", ttir)
    return {
        "loads": load.count("f32"),
        "stores": store.count("f32"),
        "bytes": sum(bits[kind] // 8 for kind in (*load, *store)),
        "races": _races(ttir),
    }


def _races(ttir: str) -> int:
    """How many numbers are replaced though a slower thread of the program may not have read them yet.

    Every thread reads a number that is not a part of a block, and one thread writes it. So it is with tensors that have
    fewer elements than the program has threads. A barrier must be in between.
    """
    read, races = set[str](), 0
    for line in ttir.splitlines():
        if re.search(r"\bbarrier\b", line):
            read.clear()
        elif load := re.search(rf"= tt\.load (%\w+)(?:, %\w+)* : {_SHARED}", line):
            read.add(load[1])
        elif (store := re.search(rf"tt\.store (%\w+)(?:, %\w+)* : {_SHARED}", line)) and store[1] in read:
            races += 1
    return races


def main() -> None:
    """Print the facts of some kernels for a target."""
    target, *names = sys.argv[1:]
    special: dict[str, dict[str, Any]] = {"fused": {"enable_fp_fusion": True}, "crowded": {"maxnreg": 24}}
    found = {
        name: facts(target, "step" if name in special else name, **special.get(name, {}))
        for name in names
        if name != "unordered"
    }
    if "unordered" in names:
        ttir = compiled(target, "step").asm["ttir"]
        found["unordered"] = {**found["step"], "races": _races(re.sub(r"\bbarrier\b", "", ttir))}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
