"""Compile once, keep the result, never load a damaged or a foreign one."""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from varlearn.optim.engine.native import compilation

ANSWER = '__attribute__((visibility("default"))) int answer(void) {{ return {}; }}'


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small C file, and a cache and a temporary directory of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "source.c"
    path.write_text(ANSWER.format(42))
    try:
        compilation.find_compiler()
    except compilation.BuildError:
        pytest.skip("no C compiler")
    return path


def libraries(source: Path) -> list[Path]:
    return sorted((source.parent / "cache" / "varlearn").glob("*.so"))


def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []
    run = compilation._run

    def counting(command: list[str]) -> str:
        if "-o" in command:
            commands.append(command)
        return run(command)

    monkeypatch.setattr(compilation, "_run", counting)
    return commands


def test_the_second_call_does_not_compile(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilations = count_compilations(monkeypatch)
    assert compilation.load(source).answer() == 42
    assert compilation.load(source).answer() == 42
    assert len(compilations) == 1
    assert len(libraries(source)) == 1


def test_another_source_header_or_processor_compiles_anew(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilations = count_compilations(monkeypatch)
    compilation.load(source)
    source.write_text('#include "source_number.h"\n' + ANSWER.format("NUMBER"))
    for number in (43, 44):
        source.with_name("source_number.h").write_text(f"#define NUMBER {number}\n")
        assert compilation.load(source).answer() == number
    monkeypatch.setattr(compilation, "_processor", lambda: "another one")
    assert compilation.load(source).answer() == 44
    assert len(compilations) == 4


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_a_damaged_file_is_replaced(source: Path, keep: int) -> None:
    compilation.load(source)
    (path,) = libraries(source)
    content = path.read_bytes()
    path.unlink()  # it is mapped into this process: a new file under the old name
    path.write_bytes(content[:keep])
    assert compilation.load(source).answer() == 42
    (again,) = libraries(source)
    assert len(again.read_bytes()) == len(content)


def test_a_changed_byte_is_noticed(source: Path) -> None:
    compilation.load(source)
    (path,) = libraries(source)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink()
    path.write_bytes(content)
    assert compilation.load(source).answer() == 42
    assert libraries(source)[0].read_bytes() != content


def test_many_may_compile_at_once(source: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: compilation.load(source).answer(), range(8)))
    assert answers == [42] * 8
    assert len(libraries(source)) == 1
    assert [path.name for path in libraries(source)[0].parent.iterdir()] == [libraries(source)[0].name]


def test_processes_share_the_cache(source: Path) -> None:
    script = f"""
import importlib.util, pathlib
spec = importlib.util.spec_from_file_location("build", {compilation.__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
raise SystemExit(module.load(pathlib.Path({str(source)!r})).answer())
"""
    running = [subprocess.Popen([sys.executable, "-S", "-c", script]) for _ in range(4)]
    assert [process.wait() for process in running] == [42] * 4
    assert len(libraries(source)) == 1


def test_without_a_writable_cache_the_temporary_directory_serves(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source.parent / "cache").write_text("not a folder")
    compilations = count_compilations(monkeypatch)
    assert compilation.load(source).answer() == 42
    assert compilation.load(source).answer() == 42
    assert len(compilations) == 1


def test_a_folder_that_others_can_write_to_is_not_trusted(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilation.load(source)
    libraries(source)[0].parent.chmod(0o777)
    compilations = count_compilations(monkeypatch)
    assert compilation.load(source).answer() == 42
    assert len(compilations) == 1


def wrapper(source: Path, refused: str) -> Path:
    """A compiler that refuses a flag."""
    compiler = compilation.find_compiler()[0]
    path = source.parent / "picky"
    path.write_text(f'#!/bin/sh\nfor flag; do [ "$flag" = "{refused}" ] && exit 1; done\nexec {compiler} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("refused", ["-march=native", "-fopenmp"])
def test_a_refused_flag_is_left_out(source: Path, refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(wrapper(source, refused)))
    compilations = count_compilations(monkeypatch)
    assert compilation.load(source).answer() == 42
    assert refused not in compilations[-1]


def test_an_error_in_the_source_is_reported(source: Path) -> None:
    source.write_text("int answer(void) { return undeclared; }")
    with pytest.raises(compilation.BuildError, match="failed with exit code 1: .*source.c"):
        compilation.load(source)
    assert libraries(source) == []


def test_no_compiler(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(compilation.BuildError, match="no C compiler: CC is not set and none of cc, gcc, clang"):
        compilation.load(source)
    monkeypatch.setenv("CC", "no-such-compiler -O1")
    with pytest.raises(compilation.BuildError, match="CC='no-such-compiler -O1' is not a program"):
        compilation.load(source)


def test_the_compiler_may_be_named_with_arguments(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source.write_text(ANSWER.format("NUMBER"))
    monkeypatch.setenv("CC", f"{compilation.find_compiler()[0]} -DNUMBER=7")
    assert compilation.load(source).answer() == 7


def test_without_a_folder_to_keep_it_in_the_library_is_compiled_for_this_process(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "_private", lambda folder: False)
    assert compilation.load(source).answer() == 42
    assert libraries(source) == []
