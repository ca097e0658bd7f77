"""What this machine has for the optimizers, whether it computes rightly, and what to do about it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import torch

from varlearn.core.dtypes import state_dtype
from varlearn.core.update import RULE
from varlearn.optim.engine import choice
from varlearn.optim.engine.native import compilation, native_engine
from varlearn.optim.engine.plan import Member
from varlearn.optim.engine.triton import triton_engine


class Check(NamedTuple):
    """One thing that was looked at.

    Attributes:
        what: its name.
        found: what was found.
        cure: what to do about it, or nothing.
        is_broken: whether something is there and does not work. What is missing is not broken.
    """

    what: str
    found: str
    cure: str = ""
    is_broken: bool = False


def all_checks() -> Iterator[Check]:
    """The checks one after the other: the kernels of a GPU take seconds to compile."""
    yield Check("Python and PyTorch", f"{platform.python_version()}, {torch.__version__}")
    devices = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    yield _gpus(devices)
    yield from _native()
    yield _triton(devices)
    for device in devices:
        if triton_engine.is_installed():
            yield from kernels_on(device)
    for device in (torch.device("cpu"), *devices):
        yield chosen_on(device)


def _gpus(devices: list[torch.device]) -> Check:
    if devices:
        kind = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        return Check("GPU", f"{', '.join(map(torch.cuda.get_device_name, devices))} ({kind})")
    if torch.version.cuda or torch.version.hip:
        cure = (
            "Look whether nvidia-smi or rocm-smi shows one, and at CUDA_VISIBLE_DEVICES; update the driver if it does."
        )
        return Check("GPU", "none that PyTorch can use", cure)
    cure = "If there is one, install PyTorch's build for CUDA or ROCm: https://pytorch.org/get-started/locally"
    return Check("GPU", "none, and this build of PyTorch is for CPUs only", cure)


def _native() -> Iterator[Check]:
    try:
        command = compilation.find_compiler()
    except compilation.BuildError as error:
        cure = "Install gcc or clang, or set CC to one. Without it, CPU training takes the slower foreach engine."
        yield Check("C compiler", str(error), cure)
        return
    yield Check("C compiler", " ".join(command))
    try:
        native_engine.load()
        yield Check("native engine", "compiled, and equal to the reference on a small example")
    except compilation.BuildError as error:
        cure = "Set CC to another compiler. Until then the foreach engine is used."
        yield Check("native engine", str(error), cure, is_broken=True)


def _triton(devices: list[torch.device]) -> Check:
    if triton_engine.is_installed():
        import triton

        return Check("Triton", triton.__version__)
    if devices:
        cure = "Install it: pip install triton (Linux; PyTorch's own builds bring it). Until then foreach is used."
        return Check("Triton", "not installed", cure)
    return Check("Triton", "not installed; without a GPU it is not needed")


def kernels_on(device: torch.device) -> Iterator[Check]:
    """The kernels of each rule and dtype on a device, compared with the loop there."""
    for (name, rule), dtype in product(triton_engine.RULES.items(), triton_engine.DTYPES):
        what = f"Triton kernels of {name}, {str(dtype).removeprefix('torch.')}, on {device}"
        problem = triton_engine.problem_on(device, name, dtype)
        if problem is None:
            difference = triton_engine.difference_from_loop(device, rule, dtype)
            yield Check(what, f"equal to the reference; the largest difference is {difference:.1e}")
        else:
            cure = (
                "The foreach engine is used instead, and is right. Update Triton and the driver. If that does not "
                "help, report this line with the versions above; fused=False silences the warning."
            )
            yield Check(what, problem, cure, is_broken=True)


def chosen_on(device: torch.device) -> Check:
    """Which engine parameters of each dtype get."""
    engines = []
    for dtype in (torch.float32, torch.bfloat16):
        param = torch.zeros(4, dtype=dtype, device=device)
        state: dict[str, Any] = {"step": 0, **{name: torch.ones(4, device=device) for name in RULE.state}}
        if state_dtype(param) != dtype:
            state["mean"] = param.float()
        group = {"foreach": None, "fused": None, "memory": "fast"}
        engines.append(f"{str(dtype).removeprefix('torch.')} {choice.choose(Member(param, state, group, 0), RULE)}")
    return Check(f"engine on {device}", ", ".join(engines))
