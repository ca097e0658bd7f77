import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.data.corpora import documents, merges, text_of
from tests.data.files import encoded, random_images, write
from varlearn.cli import main

__all__ = ["merges"]

# GPT-2's own list of merges is not at hand; its place and its checksum are replaced in a process of its own too.
RUN = """
import sys
from varlearn.data import bpe
from varlearn.data.sources import Published
bpe.MERGES = Published("gpt2/vocab.bpe", None)
from varlearn.cli import main
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.usefixtures("merges")
def test_openwebtext(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "corpus" / "a.txt", text_of(documents(50)))
    words = ["prepare", "openwebtext", str(source), "--held_out", "0.2", "--processes", "1"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    folder = tmp_path / "cache" / "openwebtext"
    assert out == f"{folder}\n"
    assert "50 documents; tokens in train.bin" in err
    assert "a second; at most" in err
    assert main(words) == 0
    assert "complete already; all checksums agree" in capsys.readouterr().err
    write(folder / "train.bin", b"damaged!")
    assert main(words) == 1
    assert "train.bin (8 bytes) has sha256" in capsys.readouterr().err
    assert main([*words[:3], "--held_out", "0.3"]) == 2
    assert main(["prepare", "openwebtext", str(tmp_path / "nowhere")]) == 2


@pytest.mark.usefixtures("merges")
def test_a_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "a.txt", text_of(documents(20)))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["prepare", "openwebtext", str(source), "--processes", "1"]) == 3
    assert "No space left on device" in capsys.readouterr().err


def test_imagenet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "val"):
        write(tmp_path / "source" / split / "n01" / "a.JPEG", encoded(random_images(1, 3, 9, 9)[0], "JPEG"))
    words = ["prepare", "imagenet", str(tmp_path / "source"), "--out", str(tmp_path / "out"), "--processes", "1"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'out'}\n"
    assert "1 images in train, 1 images in val" in err
    assert main(words) == 0
    (tmp_path / "empty").mkdir()
    assert main(["prepare", "imagenet", str(tmp_path / "empty")]) == 1
    assert "has neither a folder train nor val" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_and_going_on(merges: Path, tmp_path: Path) -> None:
    texts = documents(300)
    source = write(tmp_path / "a.txt", text_of(texts * 300))
    script = write(tmp_path / "run.py", RUN.encode())
    command = [
        sys.executable,
        str(script),
        "prepare",
        "openwebtext",
        str(source),
        "--processes",
        "2",
        "--held_out",
        "0.1",
    ]
    before = [*command, "--out", str(tmp_path / "whole")]
    subprocess.run(before, check=True, timeout=600)
    with subprocess.Popen([*command, "--out", str(tmp_path / "out")], stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "out" / "progress.json").exists():
            time.sleep(0.01)
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
    assert (process.returncode, "the same command goes on from here" in err) == (130, True)
    subprocess.run([*command, "--out", str(tmp_path / "out")], check=True, timeout=600)
    for split in ("train", "test"):
        one, two = (np.fromfile(tmp_path / folder / f"{split}.bin", dtype="<u2") for folder in ("whole", "out"))
        assert np.array_equal(one, two)
