"""The real data where they are at hand, and no network but the local one."""

import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest

_NEAR = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def pack() -> Path:
    """The folder of prepared real data: VARLEARN_DATA, or ../shared/data beside the repository."""
    folder = Path(os.environ.get("VARLEARN_DATA") or _NEAR)
    if not (folder / "SHA256SUMS").is_file():
        pytest.skip("no prepared data: set VARLEARN_DATA to a folder that holds them")
    return folder


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Addresses of this machine alone can be reached, and the user's own cache is out of sight."""
    original = urllib.request.urlopen

    def urlopen(request: Any, **options: Any) -> Any:
        url = request.full_url if isinstance(request, urllib.request.Request) else request
        if "//127.0.0.1:" not in url:
            raise urllib.error.URLError("the tests have no network")
        return original(request, **options)

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setenv("VARLEARN_CACHE", str(tmp_path / "cache"))
