"""Chromium without a window, driven over chromedriver's HTTP interface. Needs no Python package."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


def missing() -> str:
    """What a browser test lacks on this machine; empty if nothing."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed; Debian: apt-get install chromium chromium-driver" if absent else ""


class Browser:
    """One page at a time."""

    def __init__(self, address: str, session: str) -> None:
        self._address = f"{address}/session/{session}"

    def open(self, page: Path, width: int, *, dark: bool = False) -> None:
        """Load a file in a window of this width in CSS pixels."""
        self._cdp(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._cdp("Emulation.setEmulatedMedia", features=scheme)
        self.requests()  # forget those of the page before, or of the browser's own first page
        _call(f"{self._address}/url", {"url": page.resolve().as_uri()})

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return _call(f"{self._address}/execute/sync", {"script": f"return {script};", "args": []})

    def messages(self) -> list[str]:
        """What the page has written to the console since it was last asked."""
        return [entry["message"] for entry in _call(f"{self._address}/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """The addresses that were asked for since a page was opened, its own file and the data in it among them."""
        events = [
            json.loads(one["message"])["message"] for one in _call(f"{self._address}/se/log", {"type": "performance"})
        ]
        return [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path: Path, height: int | None = None) -> None:
        """Write a PNG of the page from its top, all of it or this many CSS pixels."""
        width = int(self.ask("document.documentElement.clientWidth"))
        whole = int(self.ask("document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": 0, "width": width, "height": min(whole, height or whole), "scale": 1}
        found = self._cdp("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))

    def _cdp(self, command: str, **params: Any) -> Any:
        return _call(f"{self._address}/goog/cdp/execute", {"cmd": command, "params": params})


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser with an empty profile, which ends with the block."""
    with contextlib.ExitStack() as stack:
        profile = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        port = _free_port()
        driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        stack.callback(lambda: (driver.terminate(), driver.wait(10)))
        address = f"http://127.0.0.1:{port}"
        _wait_for(address)
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "browserName": "chrome",
        }
        found = _call(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
        session = Browser(address, found["sessionId"])
        stack.callback(lambda: _call(session._address, None, method="DELETE"))
        yield session


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(address: str) -> None:
    for _ in range(200):
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            if _call(f"{address}/status", None, method="GET")["ready"]:
                return
        time.sleep(0.05)
    raise TimeoutError("chromedriver does not answer")


def _call(address: str, values: Any, method: str = "POST") -> Any:
    content = json.dumps(values).encode() if method == "POST" else None
    request = urllib.request.Request(address, content, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the driver is on this machine
    try:
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(json.load(error)["value"]["message"]) from error
