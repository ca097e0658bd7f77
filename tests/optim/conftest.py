"""What the tests of `optim` share."""

import pytest

from tests.optim.engine.problems import has_compiler
from varlearn.optim.engine import foreach


@pytest.fixture(params=["native", "foreach", "foreach, cut"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engines other than the loop. `foreach` joins small parameters; with tiny chunks, it cuts all of them."""
    if request.param == "native" and not has_compiler():
        pytest.skip("no C compiler")
    if request.param == "foreach, cut":
        monkeypatch.setattr(foreach, "_CPU_CHUNK", 4)
    return request.param.split(",")[0]
