"""The kernels are compiled and checked on first use; where that fails there is one warning, and another engine."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.optim.engine.native.test_native_numbers import native_normals
from tests.optim.engine.problems import Quadratics, member, needs_compiler
from varlearn.core import update
from varlearn.core.noise import fold_in, normal_
from varlearn.core.update import RULE
from varlearn.optim.engine import choice
from varlearn.optim.engine.native import compilation, native_engine

pytestmark = [needs_compiler, pytest.mark.usefixtures("_fresh_attempt")]


@pytest.fixture
def _fresh_attempt() -> Iterator[None]:
    native_engine._attempt.cache_clear()
    native_engine._warn.cache_clear()
    yield
    native_engine._attempt.cache_clear()
    native_engine._warn.cache_clear()


def test_without_a_compiler_there_is_one_warning_with_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert not native_engine.available()
    with pytest.warns(UserWarning, match="no C compiler.*the foreach engine is used.*Install a C compiler"):
        assert not native_engine.load_or_warn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not native_engine.load_or_warn()
        assert choice.choose(member(torch.zeros(3)), RULE) == "foreach"
    with pytest.raises(compilation.BuildError, match="no C compiler"):
        native_engine.load()


@pytest.mark.parametrize("variant", [(), ("-fopenmp",), ("-O1",)])
def test_a_build_for_any_processor_agrees(
    variant: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compilation, "_VARIANTS", (variant,))
    expected = normal_(torch.empty(5001), fold_in(7, 0))
    torch.testing.assert_close(native_normals(5001, 7), expected, rtol=0, atol=2e-6)
    Quadratics("reparam", "tensor", 1.0).compare("native", steps=2, tolerance=2e-6)


def test_a_library_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    step = update.step
    monkeypatch.setattr(update, "step", lambda q, *rest: step(q._replace(mean=q.mean + 1.0), *rest))
    with pytest.raises(compilation.BuildError, match="wrong on a small example"):
        native_engine.load()
