"""What this machine has for the optimizers, whether it computes rightly, and what to do about it."""

from __future__ import annotations

import os
import platform
import tempfile
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

from varlearn.core.dtypes import state_dtype
from varlearn.core.update import RULE
from varlearn.optim.engine import choice
from varlearn.optim.engine.native import compilation, native_engine
from varlearn.optim.engine.plan import Member
from varlearn.optim.engine.triton import triton_engine

_NO_NEED = "Without a GPU it is not needed. To use it: pip install --force-reinstall triton."


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
    yield from _caches()
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
        cure = (
            "Install gcc or clang, or set CC to one. Without it, training takes the slower foreach engine, on a CPU "
            "and on a GPU: Triton needs a compiler, too."
        )
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
        try:
            import triton
        except Exception as error:  # whatever a library raises that does not fit to the others
            cure = "Install it again: pip install --force-reinstall triton. Until then foreach is used."
            found = f"installed, but cannot be imported: {error}"
            return Check("Triton", found, cure, is_broken=True) if devices else Check("Triton", found, _NO_NEED)
        return Check("Triton", triton.__version__)
    if devices:
        cure = "Install it: pip install triton (Linux; PyTorch's own builds bring it). Until then foreach is used."
        return Check("Triton", "not installed", cure)
    return Check("Triton", "not installed; without a GPU it is not needed")


def _caches() -> Iterator[Check]:
    """Where compiled kernels are kept."""
    cure = "Set XDG_CACHE_HOME to a folder that can be written. Until then a temporary one is used."
    yield _cache("cache of the native engine", next(compilation.cache_folders()), cure)
    if triton_engine.is_installed():
        home = Path(os.environ.get("TRITON_HOME") or Path.home())
        folder = Path(os.environ.get("TRITON_CACHE_DIR") or home / ".triton" / "cache")
        cure = "Set TRITON_CACHE_DIR to a folder that can be written. Until then a GPU takes the slower foreach engine."
        yield _cache("cache of Triton", folder, cure)


def _cache(what: str, folder: Path, cure: str) -> Check:
    """Whether files can be made in a folder, or in the one in which it would be made."""
    place = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    try:
        with tempfile.TemporaryFile(dir=place):
            return Check(what, str(folder))
    except OSError as error:
        return Check(what, f"{folder} cannot be written: {error.strerror or error}", cure)


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
                "The foreach engine is used instead, and is right. Triton needs a C compiler, Python's headers (as in "
                "python3-dev) and a cache that can be written. If it has them, update Triton and the driver. If that "
                "does not help, report this line with the versions above; fused=False silences the warning."
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the checks above say the same
            chosen = choice.choose(Member(param, state, group, 0), RULE)
        engines.append(f"{str(dtype).removeprefix('torch.')} {chosen}")
    return Check(f"engine on {device}", ", ".join(engines))
