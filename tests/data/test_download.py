import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from varlearn.data import download
from varlearn.data.download import fetch, reporting
from varlearn.data.errors import DownloadError

CONTENT = bytes(range(256)) * 3000


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/none":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/unknown-length":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        if self.path == "/stuck":
            self.wfile.write(CONTENT[:1000])
            self.wfile.flush()
            self.server.released.wait(60)  # type: ignore[attr-defined]
        self.wfile.write(CONTENT[:100_000] if self.path == "/cut" else CONTENT)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.released = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=web.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{web.server_port}"
    web.released.set()  # type: ignore[attr-defined]
    web.shutdown()
    web.server_close()
    thread.join()


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_verified_file_appears_under_its_name(server: str, tmp_path: Path, algorithm: str) -> None:
    target = tmp_path / "new" / "folder" / "file"
    seen: list[tuple[str, int, int | None]] = []
    expected = hashlib.new(algorithm, CONTENT).hexdigest()
    with reporting(lambda *piece: seen.append(piece)):
        assert fetch(f"{server}/file", target, expected) == target
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert seen[-1] == ("file", len(CONTENT), len(CONTENT))
    assert seen == sorted(seen)


def test_without_a_checksum_the_length_is_checked(server: str, tmp_path: Path) -> None:
    assert fetch(f"{server}/file", tmp_path / "file", None).read_bytes() == CONTENT
    assert fetch(f"{server}/unknown-length", tmp_path / "other", None).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("path", "expected", "reason"),
    [
        ("file", "0" * 32, f"its checksum is {hashlib.md5(CONTENT).hexdigest()}, not 0000"),
        ("cut", None, r"100,000 of 768,000 bytes came"),
        ("none", None, "the server answers 404 Not Found"),
    ],
)
def test_a_failed_download_leaves_nothing(
    server: str, tmp_path: Path, path: str, expected: str | None, reason: str
) -> None:
    with pytest.raises(DownloadError, match=reason) as caught:
        fetch(f"{server}/{path}", tmp_path / "file", expected)
    assert f"{server}/{path} could not be downloaded to {tmp_path / 'file'}" in str(caught.value)
    assert "VARLEARN_DATA" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_download_keeps_the_old_file(server: str, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(DownloadError):
        fetch(f"{server}/file", target, "0" * 64)
    assert target.read_bytes() == b"old"


def test_a_silent_server_is_given_up(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.1)
    with pytest.raises(DownloadError, match="timed out"):
        fetch(f"{server}/stuck", tmp_path / "file", None)
    assert list(tmp_path.iterdir()) == []


def test_no_server(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DownloadError, match=r"no connection .*put it there as it is"):
        fetch(f"http://127.0.0.1:{port}/file", tmp_path / "sub" / "file", None)
    assert list(tmp_path.iterdir()) == []


def test_no_network(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="no connection"):
        fetch("https://example.org/file", tmp_path / "file", None)


def test_a_folder_that_cannot_be_written(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DownloadError, match="could not be downloaded"):
        fetch(f"{server}/file", tmp_path / "file" / "below", None)


def test_an_interrupted_download_leaves_nothing(server: str, tmp_path: Path) -> None:
    def stop(name: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), reporting(stop):
        fetch(f"{server}/file", tmp_path / "file", None)
    assert list(tmp_path.iterdir()) == []
