"""`varlearn doctor`: what it finds here, what it would find elsewhere, and a cure for everything that is amiss."""

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.optim.engine.problems import needs_compiler, needs_triton
from varlearn.cli import machine_checks, main
from varlearn.optim.engine.native import compilation, native_engine
from varlearn.optim.engine.triton import triton_engine

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@needs_compiler
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert torch.__version__ in said
    assert "✓ C compiler" in said
    assert "✓ native engine: compiled, and equal to the reference" in said
    assert "✓ engine on cpu: float32 native, bfloat16 foreach" in said
    assert "! GPU: none" in said


def test_without_a_compiler_there_is_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    (check,) = machine_checks._native()
    assert "no C compiler" in check.found
    assert "Install gcc or clang" in check.cure
    assert not check.is_broken


@needs_compiler
def test_a_native_engine_that_is_wrong_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise compilation.BuildError("the compiled code is wrong on a small example")

    monkeypatch.setattr(native_engine, "load", refuse)
    assert main(["doctor"]) == 1
    assert "✗ native engine: the compiled code is wrong" in capsys.readouterr().out


@needs_triton
def test_the_kernels_of_a_device_are_compared_with_the_reference() -> None:
    """In the interpreter: the device is the CPU."""
    checks = list(machine_checks.kernels_on(CPU))
    assert [check.what for check in checks] == [
        f"Triton kernels of {name}, {dtype}, on cpu"
        for name in ("ivon", "vadamw")
        for dtype in ("float32", "bfloat16", "float16")
    ]
    for check in checks:
        assert "equal to the reference" in check.found
        assert not check.is_broken
        assert not check.cure
    triton_engine.problem_on.cache_clear()


def test_kernels_that_differ_are_broken_and_have_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_engine, "problem_on", lambda device, rule, dtype: "its kernels differ")
    for check in machine_checks.kernels_on(GPU):
        assert check.is_broken
        assert "differ" in check.found
        assert "foreach engine is used" in check.cure


@pytest.mark.parametrize(("installed", "devices", "cure"), [(False, [GPU], "pip install triton"), (False, [], "")])
def test_triton_is_missed_only_where_there_is_a_gpu(
    installed: bool, devices: list[Any], cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_engine, "is_installed", lambda: installed)
    check = machine_checks._triton(devices)
    assert "not installed" in check.found
    assert cure in check.cure
    assert bool(check.cure) == bool(cure)


@pytest.mark.parametrize(("cuda", "cure"), [("12.8", "nvidia-smi"), (None, "install PyTorch's build for CUDA or ROCm")])
def test_a_missing_gpu_has_a_cure_by_the_build_of_pytorch(cuda: str | None, cure: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", None)
    assert cure in machine_checks._gpus([]).cure


def test_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.version, "hip", None)
    assert machine_checks._gpus([GPU]) == ("GPU", "NVIDIA H100 (CUDA 12.8)", "", False)


@pytest.mark.parametrize("devices", [[GPU], []], ids=str)
def test_a_triton_that_cannot_be_imported_is_a_finding(devices: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_engine, "is_installed", lambda: True)
    monkeypatch.setitem(sys.modules, "triton", None)
    check = machine_checks._triton(devices)
    assert "cannot be imported" in check.found
    assert "pip install --force-reinstall triton" in check.cure
    assert check.is_broken == bool(devices)


def test_caches_that_cannot_be_written_have_a_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_engine, "is_installed", lambda: True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "new" / "triton"))
    assert [check.cure for check in machine_checks._caches()] == ["", ""]
    assert not (tmp_path / "new").exists()
    (tmp_path / "new").write_text("a file where the folder should be")
    for check, variable in zip(machine_checks._caches(), ("XDG_CACHE_HOME", "TRITON_CACHE_DIR"), strict=True):
        assert "cannot be written" in check.found
        assert f"Set {variable} to a folder" in check.cure
        assert not check.is_broken


def test_the_chosen_engine_is_named_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the compiler has said already what is missing."""

    def warn() -> bool:
        warnings.warn("there is no compiler", stacklevel=2)
        return False

    monkeypatch.setattr(native_engine, "load_or_warn", warn)
    assert machine_checks.chosen_on(CPU).found == "float32 foreach, bfloat16 foreach"
