"""What the tests of the engines share."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.optim.engine.problems import has_triton


@pytest.fixture(autouse=True, scope="session")
def _faster_interpreter() -> Iterator[None]:
    """Triton's interpreter patches the language at each call in a kernel. Once in a launch and module is enough."""
    if not has_triton():
        yield
        return
    from triton.runtime import interpreter

    patch_language, launch, patched = interpreter._patch_lang, interpreter.GridExecutor.__call__, set[str]()

    def patch_once(function: Any) -> Any:
        if function.__module__ not in patched:
            patched.add(function.__module__)
            return patch_language(function)

    def launch_anew(*args: Any, **kwargs: Any) -> Any:
        patched.clear()
        return launch(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", patch_once)
        patch.setattr(interpreter.GridExecutor, "__call__", launch_anew)
        yield


@pytest.fixture
def _triton_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU parameters are computed by the Triton engine, in the interpreter, as those of an accelerator are."""
    from varlearn.optim.engine.native import native_engine
    from varlearn.optim.engine.triton import triton_engine

    monkeypatch.setattr(triton_engine, "DEVICES", ("cpu",))
    monkeypatch.setattr(native_engine, "load_or_warn", lambda: False)
